"""An environment that hangs where Harbor has no limit."""

import asyncio
from typing import Any, override

from terminalbench.sandbox.environment import LocalSandbox


class HangsWhenCollecting(LocalSandbox):
    """Nothing can ever be taken out of the environment of the task "hangs"."""

    @override
    async def download_dir(self, *args: Any, **kwargs: Any) -> None:
        await self._hang()
        await super().download_dir(*args, **kwargs)

    @override
    async def prepare_logs_for_host(self) -> None:
        await self._hang()

    async def _hang(self) -> None:
        if self.environment_name == "hangs":
            await asyncio.Event().wait()
