"""The protocol of executors: the part that starts the Harbor process of a job, follows it and ends it.

An executor is a class without arguments, found by `registry.resolve("executors", name)`. The `Worker` it returns is
kept in `workers/<job>.json`, so that `kill`, `resume` and `status` can ask the same executor from another process.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from terminalbench.experiments.tables import RunTable
from terminalbench.live.processes import Worker

NODE_LOST = -1000
"""The exit code of a job whose machine is gone: its trials are not to blame for it."""

NODE_FENCED = -1002
"""The same, where nothing that the job may still do there comes to the results any more: what is missing may run."""

NODE_UNFIT = -1001
"""The exit code of a job that cannot run on the machine it was given to: another try would end in the same way."""

NO_ROOM = -1003
"""The exit code of a job for which no machine is left that has room."""

CLUSTER_GONE = -1004
"""The exit code of a job that did not begin because no machine can be reached any more: no other one would."""


@dataclass(frozen=True)
class JobRun:
    """One Harbor process: its command, its whole environment, and where its files are.

    `folder` is Harbor's folder of the job and `log` takes what the process prints. Both are paths as the caller sees
    them: an executor that runs the job elsewhere has its files there before `poll` says that it has ended.
    """

    name: str
    profile: str
    argv: list[str]
    env: dict[str, str]
    folder: Path
    log: Path


class Executor(Protocol):
    """Starts jobs and answers for them. Only `poll` may be limited to jobs that this very object has started."""

    def start(self, job: JobRun) -> Worker:
        """Start a job and return how it is found again. It must end when this process dies."""
        ...

    def poll(self, worker: Worker) -> int | None:
        """The exit code of a job that has ended, negative for a signal; None while it runs. Never waits."""
        ...

    def stop(self, worker: Worker, *, now: bool = False) -> None:
        """Ask Harbor to cancel its trials and record them; with `now`, end it and all it has started at once.

        Does not wait, and does nothing for a job that has ended.
        """
        ...

    def alive(self, worker: Worker) -> bool:
        """Return whether the very job that was recorded still runs."""
        ...

    def user(self, worker: Worker) -> int | None:
        """The id of the user whose process it is; None when it is gone."""
        ...


@runtime_checkable
class ClusterExecutor(Protocol):
    """The further methods of an executor of several machines.

    A job that is lost may need `afterlife_sec` to end: only then its trials may run again, elsewhere.
    """

    afterlife_sec: float

    def ready(self, settings: RunTable) -> None:
        """Reach the machines, before a batch is taken. Raises a `UserError` within 30 seconds when a job could not run.

        `settings.parallel` is how many trials the largest job has at once.
        """
        ...

    def wave_trials(self, settings: RunTable, trials: int) -> int:
        """Return how many of so many trials a job has at most: those of a profile are split into as many jobs."""
        ...

    def waits(self, worker: Worker) -> bool:
        """Return whether a job has not begun because no machine has room for it."""
        ...

    def leave(self) -> None:
        """The run is over: let go of the machines."""
        ...
