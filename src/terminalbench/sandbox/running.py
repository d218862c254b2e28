"""The sandbox that an environment runs, and what is known of it: what its files, commands and tests go by."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Sequence

from harbor.environments.base import BaseEnvironment

from terminalbench.sandbox.answers import CommandResult, VerifierFolders
from terminalbench.sandbox.compose.services import TrialServices
from terminalbench.sandbox.errors import SandboxError
from terminalbench.sandbox.handover import VerifierPlace
from terminalbench.sandbox.image.build import BuiltImage
from terminalbench.sandbox.images.manifest import ImageConfig
from terminalbench.sandbox.log_mirror import LogMirror
from terminalbench.sandbox.session import Sandbox
from terminalbench.sandbox.setups import AgentSetup


class RunningSandbox(BaseEnvironment, ABC):
    """An environment with at most one sandbox at a time."""

    _setup: AgentSetup | None
    _services: TrialServices | None
    _sandbox: Sandbox | None
    _built: BuiltImage | None
    _uploads: contextlib.ExitStack
    _handed: list[str] | None
    _tests: VerifierFolders | None
    _kept: VerifierPlace | None
    _mirror: LogMirror

    @abstractmethod
    async def bring_up(self) -> None:
        """Start a sandbox, in place of the one that runs."""

    @abstractmethod
    async def take_down(self) -> None:
        """Stop the sandbox, if one runs."""

    @abstractmethod
    async def _run(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: dict[str, str],
        account: str,
        timeout_sec: float | None = None,
        tests: VerifierFolders | None = None,
    ) -> CommandResult: ...

    @abstractmethod
    async def _limit_notes(self) -> str: ...

    @abstractmethod
    def _agent_logs(self) -> str | None: ...

    async def _ready(self) -> Sandbox:
        """The sandbox as it is now; a set-up that was only answered so far is done."""
        if self._setup is not None:
            await self._setup.settle()
        return self._running()

    def _running(self) -> Sandbox:
        if self._sandbox is None:
            raise SandboxError("the sandbox is not running")
        return self._sandbox

    @property
    def _workdir(self) -> str:
        return self.task_env_config.workdir or self._image().workdir

    def _image(self) -> ImageConfig:
        return self._built.config if self._built is not None else ImageConfig("")

    def _account(self, user: str | int | None) -> str:
        """Who a command runs as if it is to run as `user`."""
        who = self._resolve_user(user)
        return str(who) if who is not None else self._image().user or "root"
