"""What a running sandbox answers."""

from dataclasses import dataclass

from terminalbench.sandbox.plan import SandboxLimits


@dataclass(frozen=True)
class CommandResult:
    """How a command ended and what it wrote."""

    exit_code: int
    stdout: str
    stderr: str
    left: int | None = None
    """How many processes tests have left running that could write the reward (all were ended); None where it was no
    test, -1: not known."""
    ended_ns: int = 0
    """When tests ended: nothing that was written before has a later stamp."""


@dataclass(frozen=True)
class VerifierFolders:
    """Where tests and their reward are, and the `system` folders: what they run from elsewhere is then confined."""

    tests: str
    logs: str
    system: list[str] | None = None


@dataclass(frozen=True)
class OverseerCounts:
    """How many programs of the work the tests have run confined, and how many could not be.

    `readers` of them could read the tests: shells, builds, and what was handed something of theirs.
    `rewritten` are files of the tests, and programs of the image (absolute), that changed while they ran, `late`
    rewards that changed after that.
    """

    confined: int
    free: int
    readers: int = 0
    rewritten: tuple[str, ...] = ()
    late: tuple[str, ...] = ()


@dataclass(frozen=True)
class LimitCounts:
    """How often each limit of a sandbox was reached."""

    memory: int = 0
    processes: int = 0
    disk: int = 0
    files: int = 0

    def reached_since(self, before: "LimitCounts", limits: SandboxLimits) -> list[str]:
        """Return what was reached meanwhile, in words."""
        texts = {
            "memory": f"memory limit of {limits.memory_mb} MB reached: processes were killed",
            "processes": f"process limit of {limits.processes} reached",
            "disk": f"storage limit of {limits.storage_mb} MB reached: processes were killed",
            "files": "the machine had few open files left: processes were killed",
        }
        return [text for name, text in texts.items() if getattr(self, name) > getattr(before, name)]


@dataclass(frozen=True)
class OmittedEntries:
    """What did not come out of a folder: nested too deep, too many, or larger than there is room for."""

    count: int = 0
    example: str | None = None


@dataclass(frozen=True)
class PreparedFolders:
    """What was in the verifier's folders, and links into them: some by name, and how many."""

    found: tuple[str, ...]
    links: tuple[str, ...]
    links_count: int
