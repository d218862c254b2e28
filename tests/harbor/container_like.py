"""The local sandbox made to look like a Docker container to the verifier, where there is no Docker to test with.

Log folders are mounted from the host, and there is no `kill_processes`: the verifier has to help itself. As with
Docker, some time passes between the first process and the first command.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, override

from harbor.environments.capabilities import EnvironmentCapabilities

from terminalbench.sandbox.environment import LocalSandbox


class ContainerLike(LocalSandbox):
    """A sandbox with Docker's habits."""

    kill_processes = hand_to_verifier = limit_counts = None

    @staticmethod
    @override
    def type() -> str:
        return "docker"

    @property
    @override
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(mounted=True, disable_internet=True, dynamic_network_policy=True)

    @override
    def _is_log(self, mount: Mapping[str, Any]) -> bool:
        return False

    @override
    async def start(self, force_build: bool) -> None:
        await super().start(force_build)
        await asyncio.sleep(0.7)
