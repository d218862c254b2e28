"""What the runner and its bridge to a Ray cluster say to each other: a JSON object in each line of a pipe."""

from pathlib import Path

import msgspec

from terminalbench.runner.executors.base import JobRun


class Join(msgspec.Struct, tag=True, frozen=True):
    """The first line: which cluster, what a trial takes of a node, and for how long to try: `again` and again, or once.

    Without an address it is one of its own.
    """

    address: str | None
    cpus_per_trial: float
    memory_mb_per_trial: int
    trials: int
    patience_sec: float
    again: bool = False


class Start(msgspec.Struct, tag=True, frozen=True):
    """A job, with `trials` at once."""

    name: str
    profile: str
    argv: list[str]
    env: dict[str, str]
    folder: str
    log: str
    trials: int

    def job(self) -> JobRun:
        """It, as an executor takes it."""
        return JobRun(self.name, self.profile, self.argv, self.env, Path(self.folder), Path(self.log))


class Stop(msgspec.Struct, tag=True, frozen=True):
    """Interrupt a job, or end it at once."""

    name: str
    now: bool


class Joined(msgspec.Struct, tag=True, frozen=True):
    """The cluster is there."""

    nodes: int


class Refused(msgspec.Struct, tag=True, frozen=True):
    """The cluster cannot be used, and why; the bridge ends."""

    what: str
    hint: str


class Began(msgspec.Struct, tag=True, frozen=True):
    """A job has found a node."""

    name: str
    host: str


class Ended(msgspec.Struct, tag=True, frozen=True):
    """A job has ended, as `Executor.poll` tells it. `said` is for its log."""

    name: str
    code: int
    said: str = ""


type Order = Join | Start | Stop
type News = Joined | Refused | Began | Ended
