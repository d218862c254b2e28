"""Ending what runs: only processes and containers we recorded, gracefully first, and verified afterwards.

What runs a job is ended by the executor it was recorded with, and only when it is this user's. A container counts by
its compose project, which carries the name of a trial. What could not be looked at is said, never taken for nothing.
"""

import os
import time
from dataclasses import dataclass

from terminalbench.experiments.batch import Batch
from terminalbench.live.processes import LiveProcess, executor, forget_dead_workers, live_processes
from terminalbench.runner.containers import Container, NoAnswer, running_containers, stop_containers
from terminalbench.runner.executors.local import ancestors

GRACE_SEC = 40.0
_HARD_SEC = 10.0


@dataclass(frozen=True)
class Found:
    """What runs in some batches: ours, what belongs to another user, and why containers could not be looked at."""

    processes: tuple[LiveProcess, ...] = ()
    containers: tuple[Container, ...] = ()
    strangers: tuple[LiveProcess, ...] = ()
    unknown: str | None = None

    def __bool__(self) -> bool:
        """Whether there is anything to end."""
        return bool(self.processes or self.containers)

    @property
    def clear(self) -> bool:
        """Whether it is certain that nothing runs."""
        return not self and not self.strangers and self.unknown is None


def find(batches: list[Batch], *, all_containers: bool = False) -> Found:
    """The live processes and containers of batches; never this process or one it descends from."""
    spared = ancestors()
    alive = [p for batch in batches for p in live_processes(batch) if p.worker.pid not in spared]
    ours = tuple(p for p in alive if p.user == os.getuid())
    strangers = tuple(p for p in alive if p.user != os.getuid())
    try:
        containers = running_containers(batches, all_containers=all_containers)
    except NoAnswer as error:
        return Found(ours, (), strangers, str(error))
    return Found(ours, containers, strangers)


def end(batches: list[Batch], found: Found, *, all_containers: bool = False, grace_sec: float = GRACE_SEC) -> Found:
    """End what was found: runners are interrupted and get time to record; then everything left is killed.

    Returns what is still there, which should be nothing.
    """
    runners = [p for p in found.processes if p.kind == "runner"]
    cared_for = {p.batch for p in runners}
    for process in [*runners, *(p for p in found.processes if p.batch not in cared_for)]:
        executor(process.worker.executor).stop(process.worker)
    _wait(found.processes, grace_sec)
    for process in [p for p in found.processes if p.alive]:
        executor(process.worker.executor).stop(process.worker, now=True)
    _wait(found.processes, _HARD_SEC)
    for batch in batches:
        forget_dead_workers(batch)
    left = find(batches, all_containers=all_containers)
    if left.containers:
        stop_containers(left.containers)
        left = find(batches, all_containers=all_containers)
    return left


def end_leftovers(batch: Batch) -> Found:
    """End what an earlier runner of a batch left running. For the one that holds the batch's lock.

    Returns what is still there. Until it is gone, a trial could end twice.
    """
    found = find([batch])
    return end([batch], found) if found else found


def _wait(processes: tuple[LiveProcess, ...], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(process.alive for process in processes) and time.monotonic() < deadline:
        time.sleep(0.1)
