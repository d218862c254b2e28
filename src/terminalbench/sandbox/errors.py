"""How a sandbox says no: `Refused` before anything started, `SandboxError` when something broke."""

from enum import StrEnum

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


class ImageFault(StrEnum):
    """Why an image cannot be had. Code acts on this; the sentence beside it is for people."""

    NOT_FOUND = "not_found"
    DENIED = "denied"
    RATE_LIMITED = "rate_limited"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    DAMAGED = "damaged"
    PLATFORM = "platform"
    UNSUPPORTED = "unsupported"


class ImageError(SandboxError):
    """An image cannot be had, or cannot be used here."""

    def __init__(self, fault: ImageFault, what: str, *, hint: str | None = None) -> None:
        super().__init__(what, hint=hint)
        self.fault = fault
