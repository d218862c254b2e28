"""The workers of a night: started, watched, ended; and what trials were running when one of them died.

This is the one place that knows how the process of a worker is started.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, Self

from terminalbench.experiments.batch import Batch
from terminalbench.index.places import plan_or_none
from terminalbench.json_files import decode_plain, tail_jsonl
from terminalbench.locks import start_ticks
from terminalbench.modes import make_file, make_folder
from terminalbench.overnight.decisions import WorkerWatch
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.night import Heartbeat, IterationWork, Role, WorkerLease
from terminalbench.records.event import Event, EventKind
from terminalbench.records.trial import Outcome
from terminalbench.records.values import stamp
from terminalbench.runner.environment import FIXED
from terminalbench.runner.executors import local
from terminalbench.runner.executors.local import ADDRESS, OWN_PROCESSES, ForkedProcess, LoadedHarbor

MODULE = "terminalbench.overnight.worker"
PROGRAM = [sys.executable, "-m", MODULE]
"""The command of a worker, before its arguments."""


@dataclass(frozen=True)
class WorkerAssignment:
    """What a worker is to do: `again` when an earlier one may have begun, `alone` for one trial at a time.

    `retry`: errors of the bench are tried again.
    """

    folder: NightFolder
    number: int
    role: Role
    again: bool = False
    alone: bool = False
    retry: bool = False

    def arguments(self) -> list[str]:
        """The same as the arguments of a worker's command line."""
        flags = [f"--{name}" for name in ("again", "alone", "retry") if getattr(self, name)]
        return [str(self.folder.folder), str(self.number), str(self.role), *flags]

    @classmethod
    def of(cls, arguments: list[str]) -> "WorkerAssignment":
        """Return the assignment in the arguments of a worker's command line."""
        folder, number, role, *flags = arguments
        given = {flag.removeprefix("--"): True for flag in flags}
        return cls(NightFolder(Path(folder)), int(number), Role(role), **given)


class ProcessHandle(Protocol):
    """What the supervisor uses of a worker's process."""

    pid: int

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""


class WorkerForkServer:
    """The process from which workers and their Harbor processes are forked, while a block lasts.

    Without it (not on Linux, or by TERMINALBENCH_OWN_PROCESSES) each loads all that it needs by itself.
    """

    def __init__(self, folder: NightFolder) -> None:
        own = sys.platform != "linux" or os.environ.get(OWN_PROCESSES) or ADDRESS in os.environ
        self._log, self._given_up = folder.loaded_log, False
        self._loaded = None if own else LoadedHarbor(folder.loaded_log, modules=(MODULE,))

    def __enter__(self) -> Self:
        self.keep()
        return self

    def __exit__(self, *_: object) -> None:
        if self._loaded is not None:
            self._loaded.end()

    def keep(self) -> str | None:
        """Start it again, should it have died: its workers died with it, and others take their place. In words, if so.

        After several deaths it is not started any more.
        """
        loaded, given_up = self._loaded, self._given_up
        if loaded is None or loaded.alive or given_up:
            return None
        first = not loaded.starts
        loaded.start()
        self._given_up = not loaded.alive
        if first:
            return None
        then = "from now on each worker loads Harbor itself" if self._given_up else "it is restarted"
        return f"the process that workers are forked from has died (details in {self._log.name}); {then}"

    def passed_over(self, process: ProcessHandle) -> bool:
        """Return whether a worker was started by itself though it could have been forked."""
        return self._loaded is not None and self._loaded.alive and not isinstance(process, ForkedProcess)


def start_worker(assigned: WorkerAssignment, log: Path) -> ProcessHandle:
    """Start a worker with its output in a log. It drains, by SIGTERM, should this process die, and is then ended."""
    make_folder(log.parent)
    make_file(log)
    with log.open("ab") as output:
        return local.spawn(
            [*PROGRAM, *assigned.arguments()],
            {**os.environ, **FIXED},
            signal.SIGTERM,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


_BEAT_BYTES = 1 << 16


@dataclass
class WorkerProcess:
    """A worker at work. `stopping` says why it was asked to end, `deaths` how many of its Harbor's were told."""

    number: int
    work: IterationWork
    process: ProcessHandle
    watch: WorkerWatch
    stopping: str | None = None
    killed: str | None = None
    deaths: int = 0

    def stop(self, reason: str, now: float) -> None:
        """Ask it to end its trials and to record them."""
        if self.stopping is None:
            self.stopping, self.watch.asked_at = reason, now
            _send(self.process.pid, signal.SIGTERM)

    def kill(self, reason: str) -> None:
        """End it at once; its Harbor processes end with it (`runner.executors.tie`)."""
        self.killed = self.killed or reason
        _send(self.process.pid, signal.SIGKILL, group=True)


def hire(folder: NightFolder, work: IterationWork, number: int, now: float) -> WorkerProcess:
    """Start a worker on an iteration."""
    folder.heartbeat(work.number, work.role).unlink(missing_ok=True)
    assigned = WorkerAssignment(folder, work.number, work.role, work.starts > 1, work.alone, work.rounds > 0)
    process = start_worker(assigned, folder.worker_log(work.number, work.role))
    return WorkerProcess(number, work, process, WorkerWatch(now))


def lease_of(hand: WorkerProcess, at: float) -> WorkerLease:
    """Return what the state says of a worker."""
    pid = hand.process.pid
    since = stamp(datetime.now(UTC))
    return WorkerLease(hand.number, pid, start_ticks(pid), socket.gethostname(), since, at)


def read_beat(folder: NightFolder, number: int, role: Role) -> Heartbeat | None:
    """The last heartbeat of whoever works, or worked, on an iteration; None while there is none."""
    return decode_plain(folder.heartbeat(number, role), Heartbeat, _BEAT_BYTES)


def orphan_of(folder: NightFolder, work: IterationWork) -> int | None:
    """The process of a worker whose supervisor is gone, if it still lives: by its pid and the time of its start."""
    beat = read_beat(folder, work.number, work.role)
    found = [(work.lease.pid, work.lease.start_ticks)] if work.lease is not None else []
    found += [(beat.pid, beat.start_ticks)] if beat is not None else []
    if work.lease is not None and work.lease.host != socket.gethostname():
        return None
    return next((pid for pid, ticks in found if ticks is not None and start_ticks(pid) == ticks), None)


def end_orphan(pid: int) -> None:
    """End a worker that nobody looks after any more."""
    _send(pid, signal.SIGKILL, group=True)


def _send(pid: int, number: signal.Signals, *, group: bool = False) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if group and os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)


@dataclass(frozen=True)
class TasksAtDeath:
    """The tasks (`dataset/id`) whose trials were running when a worker died, and those that had finished under it."""

    running: frozenset[str] = frozenset()
    finished: frozenset[str] = field(default_factory=frozenset)


def seen_in(batch: Batch, events_from: int) -> TasksAtDeath:
    """Return what the events of a batch tell of the time of a worker."""
    plan = plan_or_none(batch)
    datasets = {task.label: task.ref.dataset for job in plan.jobs for task in job.tasks} if plan is not None else {}
    return told_by(tail_jsonl(batch.events_jsonl, events_from, Event).records, datasets)


def told_by(events: Iterable[Event], datasets: dict[str, str]) -> TasksAtDeath:
    """The same from events; `datasets` are by the label that events have. Pure.

    A trial that was cancelled had not come to its end: its Harbor was told to stop when the worker was gone.
    """
    running: dict[str, str] = {}
    finished: set[str] = set()
    for event in events:
        label = event.dataset or ""
        task, trial = f"{datasets.get(label, label)}/{event.task}", event.trial or ""
        if event.kind == EventKind.TRIAL_STARTED:
            running[trial] = task
        elif event.kind == EventKind.TRIAL_ENDED and event.outcome != Outcome.CANCELLED:
            running.pop(trial, None)
            finished.add(task)
    return TasksAtDeath(frozenset(running.values()), frozenset(finished))


def batch_of(folder: NightFolder, place: str | None) -> Batch | None:
    """The batch that a heartbeat names."""
    return Batch(folder.results_root / place) if place is not None else None
