"""Ending what runs: only processes and containers we recorded, gracefully first, and verified afterwards.

What runs a job is ended by the executor it was recorded with, and only when it is this user's. A container counts by
its compose project, which carries the name of a trial. What could not be looked at is said, never taken for nothing.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.index.places import plan_or_none
from terminalbench.json_files import read_jsonl, tail_jsonl
from terminalbench.live.processes import (
    LiveProcess,
    Worker,
    executor,
    forget_dead_workers,
    live_processes,
    recorded_workers,
)
from terminalbench.records.event import Event, EventKind
from terminalbench.runner.executors import death_signal
from terminalbench.runner.executors.base import ClusterExecutor
from terminalbench.runner.executors.local import ancestors
from terminalbench.text.numbers import duration

GRACE_SEC = 40.0
_HARD_SEC = 10.0
_LOOK_SEC = 0.2
_ENGINES = ("docker", "podman")
_TIMEOUT_SEC = 60
_STOP_SEC = 10
_MODULE = "terminalbench.runner.kill"


class NoAnswer(Exception):
    """A container engine could not be asked."""


@dataclass(frozen=True)
class RunningContainer:
    """A running container: its id, the compose project (a trial) it belongs to, and the engine that runs it."""

    id: str
    project: str
    engine: str = "docker"


@dataclass(frozen=True)
class LiveProcesses:
    """The processes of some batches: ours, those of another user, and why containers could not be looked at."""

    processes: tuple[LiveProcess, ...] = ()
    containers: tuple[RunningContainer, ...] = ()
    strangers: tuple[LiveProcess, ...] = ()
    unknown: str | None = None

    def __bool__(self) -> bool:
        """Return whether there is anything to end."""
        return bool(self.processes or self.containers)

    @property
    def clear(self) -> bool:
        """Return whether it is certain that nothing runs."""
        return not self and not self.strangers and self.unknown is None


def find(batches: list[Batch], *, all_containers: bool = False) -> LiveProcesses:
    """The live processes and containers of batches; never this process or one it descends from."""
    spared = ancestors()
    alive = [p for batch in batches for p in live_processes(batch) if p.worker.pid not in spared]
    ours = tuple(p for p in alive if p.user == os.getuid())
    strangers = tuple(p for p in alive if p.user != os.getuid())
    try:
        containers = running_containers(batches, all_containers=all_containers)
    except NoAnswer as error:
        return LiveProcesses(ours, (), strangers, str(error))
    return LiveProcesses(ours, containers, strangers)


def end(
    batches: list[Batch], found: LiveProcesses, *, all_containers: bool = False, grace_sec: float = GRACE_SEC
) -> LiveProcesses:
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
        await_ends(batch)
        forget_dead_workers(batch)
    left = find(batches, all_containers=all_containers)
    if left.containers:
        stop_containers(left.containers)
        left = find(batches, all_containers=all_containers)
    return left


def await_ends(batch: Batch, note: Callable[[str], None] = lambda _text: None) -> None:
    """Wait until the jobs of a killed runner have ended on other machines: they do so by themselves, a while after it.

    One that has said so has ended.
    """
    left = {worker.job: sec for worker in recorded_workers(batch) if (sec := _afterlife_sec(worker)) > 0.0}
    if not left:
        return
    note(f"waiting up to {duration(max(left.values()))} for jobs of the previous run to end on other machines")
    started, offset = time.monotonic(), 0
    while left := {job: sec for job, sec in left.items() if time.monotonic() < started + sec}:
        told = tail_jsonl(batch.events_jsonl, offset, Event)
        offset = told.offset
        over = {event.job for event in told.records if event.kind == EventKind.JOB_ENDED}
        left = {job: sec for job, sec in left.items() if job not in over}
        if left:
            time.sleep(_LOOK_SEC)


def _afterlife_sec(worker: Worker) -> float:
    try:
        found = executor(worker.executor)
    except UserError:
        return 0.0  # it is taken to run, and never forgotten
    return found.afterlife_sec if isinstance(found, ClusterExecutor) else 0.0


def end_leftovers(batch: Batch) -> LiveProcesses:
    """End what an earlier runner of a batch left running. For the one that holds the batch's lock.

    Returns what is still there. Until it is gone, a trial could end twice.
    """
    found = find([batch])
    return end([batch], found) if found else found


def end_containers(batch: Batch, job: str) -> None:
    """Stop the containers of a job whose Harbor process has ended: one that was killed could not."""
    engine = _engine(batch)
    if engine is None or not batch.job_folder(job).is_dir():
        return
    prefixes = tuple(f"{_project(folder.name)}__" for folder in batch.job_folder(job).iterdir() if folder.is_dir())
    try:
        left = tuple(container for container in _running(engine) if container.project.startswith(prefixes))
    except NoAnswer:
        return  # `tbench kill` says so
    if left:
        stop_containers(left)


def when_orphaned(batch: Batch, job: str) -> dict[str, str]:
    """Return the environment by which `death_signal` stops the containers of a job, should this runner be killed."""
    if _engine(batch) is None:
        return {}
    return {death_signal.ORPHANED: json.dumps([sys.executable, "-m", _MODULE, str(batch.folder.absolute()), job])}


def _wait(processes: tuple[LiveProcess, ...], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(process.alive for process in processes) and time.monotonic() < deadline:
        time.sleep(0.1)


def running_containers(batches: list[Batch], *, all_containers: bool) -> tuple[RunningContainer, ...]:
    """The running containers of the batches' trials; with `all_containers`, all there are on this host."""
    wanted: dict[str, set[str]] = {}
    for batch in batches:
        engine = _engine(batch)
        if engine is not None:
            wanted.setdefault(engine, set()).update(_projects(batch))
    found: list[RunningContainer] = []
    for engine, projects in wanted.items():
        if projects and not all_containers:
            prefixes = tuple(f"{project}__" for project in projects)
            found += [c for c in _running(engine) if c.project.startswith(prefixes)]
    if all_containers:
        engines = [e for e in _ENGINES if e in wanted or shutil.which(e)] or list(_ENGINES[:1])
        found += [container for engine in engines for container in _running(engine)]
    return tuple(found)


def _running(engine: str) -> list[RunningContainer]:
    listing = _ask(engine, "ps", "--no-trunc", "--format", '{{.ID}}\t{{.Label "com.docker.compose.project"}}')
    rows = [line.split("\t") for line in listing.splitlines() if "\t" in line]
    return [RunningContainer(identifier, project, engine) for identifier, project in rows]


def stop_containers(containers: tuple[RunningContainer, ...]) -> None:
    """Stop containers: gracefully, then hard. Look again afterwards."""
    for engine in {container.engine for container in containers}:
        try:
            _ask(engine, "stop", "--time", str(_STOP_SEC), *(c.id for c in containers if c.engine == engine))
        except NoAnswer:
            continue  # what is left is found by the look that follows


def _engine(batch: Batch) -> str | None:
    plan = plan_or_none(batch)
    return plan.settings.container_env if plan is not None and plan.settings.container_env in _ENGINES else None


def _projects(batch: Batch) -> set[str]:
    """The compose projects Harbor made for the trials of a batch: their names, as compose spells them."""
    names = {event.trial for event in read_jsonl(batch.events_jsonl, Event).records if event.trial}
    names |= {folder.name for folder in batch.runs.glob("*/*/")}
    return {_project(name) for name in names}


def _project(trial: str) -> str:
    return re.sub(r"[^a-z0-9_-]", "-", re.sub(r"^(?![a-z0-9])", "0", trial.lower()))


def _ask(engine: str, *arguments: str) -> str:
    program = shutil.which(engine)
    if program is None:
        raise NoAnswer(f"{engine} is not installed")
    try:
        ran = subprocess.run(
            [program, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SEC,
            start_new_session=True,
        )
    except OSError as error:
        raise NoAnswer(f"{engine} {arguments[0]}: {error.strerror or error}") from None
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"{engine} {arguments[0]} did not answer in {duration(_TIMEOUT_SEC)}") from None
    if ran.returncode != 0:
        said = ran.stderr.strip().splitlines()[-1:] or [f"exit code {ran.returncode}"]
        raise NoAnswer(f"{engine} {arguments[0]}: {said[0]}")
    return ran.stdout


if __name__ == "__main__":
    end_containers(Batch(Path(sys.argv[1])), sys.argv[2])
