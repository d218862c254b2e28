"""What a running sandbox answers."""

from dataclasses import dataclass

from terminalbench.sandbox.plan import Limits


@dataclass(frozen=True)
class Finished:
    """How a command ended and what it wrote."""

    exit_code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Counts:
    """How often each limit of a sandbox was reached."""

    memory: int = 0
    processes: int = 0
    disk: int = 0
    files: int = 0

    def reached_since(self, before: "Counts", limits: Limits) -> list[str]:
        """What was reached meanwhile, in words."""
        texts = {
            "memory": f"memory limit of {limits.memory_mb} MB reached: processes were killed",
            "processes": f"process limit of {limits.processes} reached",
            "disk": f"storage limit of {limits.storage_mb} MB reached: processes were killed",
            "files": "the machine had few open files left: processes were killed",
        }
        return [text for name, text in texts.items() if getattr(self, name) > getattr(before, name)]


@dataclass(frozen=True)
class LeftOut:
    """What did not come out of a folder: nested too deep, too many, or larger than there is room for."""

    count: int = 0
    example: str | None = None


@dataclass(frozen=True)
class Prepared:
    """What was in the verifier's folders, and links into them: some by name, and how many."""

    found: tuple[str, ...]
    links: tuple[str, ...]
    links_count: int
