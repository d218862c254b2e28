"""How a sandbox says no: `Refused` before anything started, `SandboxError` when something broke."""

from terminalbench.errors import TbenchError, UserError

DOCKER_HINT = 'run this task with container_env = "docker"'


class Refused(UserError):
    """The sandbox cannot honour what the task or the configuration asks for; the hint names what can."""

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = DOCKER_HINT) -> None:
        super().__init__(what, where=where, hint=hint)


class SandboxError(TbenchError):
    """A sandbox could not be started, built or used."""


class SandboxNetworkError(SandboxError):
    """The relay, which is a sandbox's network, has failed: an error of the bench, not of the agent in the sandbox."""


class BrokenContent(SandboxError):
    """The sandbox stands, and what the agent left in it cannot be worked with."""
