"""The processes of a batch that are alive: the executor that each was recorded with is asked.

Each run announces itself in the user's state folder, so that `kill --all` and `status` find batches of every results
folder; the announcement is only a pointer, the batch's own files are the record. Harbor jobs that are not ours record
no process: what runs writes, sooner or later.
"""

import hashlib
import os
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from terminalbench import registry
from terminalbench.errors import TbenchError, UserError
from terminalbench.experiments.batch import Batch
from terminalbench.index.places import ForeignJobs
from terminalbench.index.queries import BatchView
from terminalbench.json_files import read_json, write_json
from terminalbench.locks import lock_owner
from terminalbench.text.names import from_here
from terminalbench.text.numbers import duration


class Worker(msgspec.Struct, frozen=True, omit_defaults=True):
    """The process of a job: enough for its executor to find it again, and to be sure that it is the same.

    A process of a machine has a `pid`, a `group` and `start_ticks`; `reference` is what another executor calls its job.
    """

    job: str
    profile: str
    pid: int | None = None
    group: int | None = None
    host: str = ""
    started_at: str = ""
    start_ticks: int | None = None
    command: list[str] = []
    executor: str = "local"
    reference: str | None = None


class LiveProcess(msgspec.Struct, frozen=True):
    """A process that runs for a batch now: its runner, a process of some machine, or the Harbor process of a job."""

    kind: str
    batch: str
    worker: Worker

    @property
    def alive(self) -> bool:
        """Return whether it still runs, as its executor says; taken to run where the executor cannot be loaded."""
        try:
            return executor(self.worker.executor).alive(self.worker)
        except UserError:
            return True

    @property
    def user(self) -> int | None:
        """Whose it is; None when it is gone."""
        return executor(self.worker.executor).user(self.worker)

    @property
    def shown(self) -> str:
        """Return what a person finds it by."""
        return self.worker.reference or str(self.worker.pid)


@cache
def executor(name: str) -> Any:
    """The executor of that name (see `terminalbench.runner.executors`): one object of it in each process."""
    return registry.resolve("executors", name)()


def live_processes(batch: Batch) -> list[LiveProcess]:
    """Return what of a batch runs now: first its runner, if it is on this machine, then its Harbor processes.

    Cheap where none was recorded: the dashboard asks for every batch, every second.
    """
    found = []
    place = str(batch.folder)
    owner = lock_owner(batch.lock) if _size(batch.lock) else None
    if owner is not None:
        runner = Worker("", "", owner.pid, None, owner.host, owner.since, owner.start_ticks)
        found.append(LiveProcess("runner", place, runner))
    found += [LiveProcess("harbor", place, worker) for worker in recorded_workers(batch)]
    return [process for process in found if process.alive]


def resume_places(batches: Sequence[Batch], views: Sequence[BatchView]) -> dict[str, str]:
    """Return how a person in the current folder names each batch that may be resumed, by `slug/number`.

    It is a batch of ours that is not running, and lies in the folder that it was planned for.
    """
    places = {}
    for batch, view in zip(batches, views, strict=True):
        plan = view.plan
        if plan.imported is not None:
            continue
        moved = plan.provenance.root is not None and plan.place().resolve() != batch.folder.resolve()
        if not (isinstance(batch, ForeignJobs) or moved or live_processes(batch)):
            places[view.batch] = from_here(batch.folder)
    return places


def forget_dead_workers(batch: Batch) -> None:
    """Remove the records of processes that are gone."""
    alive = {process.worker.job for process in live_processes(batch)}
    for file in (batch.folder / "workers").glob("*.json"):
        if file.stem not in alive:
            file.unlink(missing_ok=True)


def recorded_workers(batch: Batch) -> Iterator[Worker]:
    """Return what runs, or ran, the jobs of a batch that have not been seen to end."""
    folder = batch.folder / "workers"
    names = sorted(os.listdir(folder)) if _size(folder) else []  # noqa: PTH208
    for name in names:
        try:
            yield read_json(folder / name, Worker)
        except (OSError, TbenchError):
            continue  # it is being replaced, or torn: the process it named is found by the next look


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except OSError:
        return 0


def state_folder() -> Path:
    """Return where runs announce themselves: the user's state folder."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "terminalbench" / "running"


@contextmanager
def announced(batch: Batch) -> Generator[None]:
    """Announce that a batch is running, while it is. A state folder that cannot be written is no reason not to run."""
    name = hashlib.sha256(str(batch.folder).encode()).hexdigest()[:16]
    file = state_folder() / f"{name}.json"
    try:
        write_json(file, {"batch": str(batch.folder)})
    except OSError:
        file = None
    try:
        yield
    finally:
        if file is not None:
            file.unlink(missing_ok=True)


def announced_batches() -> list[Batch]:
    """The batches this user's runs have announced; those whose folder is gone are passed over."""
    found = []
    for file in sorted(state_folder().glob("*.json")) if state_folder().is_dir() else []:
        try:
            folder = Path(read_json(file)["batch"])
        except (OSError, TbenchError, KeyError, TypeError):
            continue
        if folder.is_dir():
            found.append(Batch(folder))
    return found


QUIET_SEC = 1800.0
"""A job that has not finished, and to which nothing was written for so long, is taken to be over."""
_LOOK_SEC = 60.0
_NAMED = 3


class _JobResult(msgspec.Struct, frozen=True):
    finished_at: str | None = None


@dataclass
class ForeignRun:
    """The jobs below a folder. `silent` are those that never finished, and for how long nothing was written to each."""

    runs: Path
    silent: dict[str, float] = field(default_factory=dict)
    _signs: dict[Path, tuple[float, float]] = field(default_factory=dict)
    _ends: dict[Path, tuple[int, float | None]] = field(default_factory=dict)

    def alive(self, now: float) -> bool:
        """Return whether one of them runs. `now` is the time of day."""
        quiet = {folder.name: self._quiet(folder, now) for folder in self._unfinished()}
        self.silent = {name: age for name, age in quiet.items() if age >= QUIET_SEC}
        return len(self.silent) < len(quiet)

    @property
    def cut_off(self) -> str | None:
        """Return what is to be said of jobs that never finished; None: there is none."""
        if not self.silent:
            return None
        names = sorted(self.silent)
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        ago = duration(min(self.silent.values()))
        return f"never finished: {', '.join(names[:_NAMED])}{more}; nothing has been written there for {ago}"

    def _unfinished(self) -> list[Path]:
        jobs = [folder for folder in self.runs.glob("*/") if (folder / "config.json").is_file()]
        return [folder for folder in jobs if _finished_at(folder / "result.json") is None]

    def _quiet(self, folder: Path, now: float) -> float:
        """Return for how long a job has been silent: by its files, or where these are new, as those of a copy, by its
        trials."""
        age = now - self._last_sign(folder, now)
        ended = self._ended(folder) if age < QUIET_SEC else None
        return now - ended if ended is not None and now - ended >= QUIET_SEC else age

    def _ended(self, folder: Path) -> float | None:
        """Return when the last trial of a job ended by its own word; None while one of them has not."""
        results = [place / "result.json" for place in folder.glob("*/")]
        if not results or not all(map(os.path.isfile, results)):
            return None
        count, ended = self._ends.get(folder, (0, None))
        if count != len(results):
            ends = [_finished_at(file) for file in results]
            ended = None if None in ends else max(map(_moment, filter(None, ends)))
            self._ends[folder] = (len(results), ended)
        return ended

    def _last_sign(self, folder: Path, now: float) -> float:
        """Return when something was last written below a job, or a while before: large ones take long to look through.

        It is looked through when the last sign has become old; one that was silent then, after a minute again.
        """
        looked, sign = self._signs.get(folder, (-_LOOK_SEC, -QUIET_SEC))
        was_silent = looked - sign >= QUIET_SEC
        if now - sign >= QUIET_SEC and not (was_silent and 0 <= now - looked < _LOOK_SEC):
            sign = last_written(folder, now + QUIET_SEC)
            self._signs[folder] = (now, sign)
        return sign


def last_written(folder: Path, until: float) -> float:
    """The newest time of anything below a folder, no link followed. A time after `until` is made up and left out.

    Should all be after it, the clock of whoever writes is ahead: then nobody knows, and it counts as written now.
    """
    newest = 0.0
    for place, folders, files in os.walk(folder):
        for name in (".", *folders, *files):
            try:
                time = os.lstat(f"{place}/{name}").st_mtime
            except OSError:
                continue  # it went away meanwhile
            if newest < time < until:
                newest = time
    return newest or until - QUIET_SEC


def _moment(text: str) -> float:
    """A time of Harbor's; one that is none is that of now, so that nothing follows from it."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return time.time()
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()


def _finished_at(file: Path) -> str | None:
    try:
        return read_json(file, _JobResult).finished_at
    except (OSError, TbenchError):
        return None
