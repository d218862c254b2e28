"""What is running now, from what we recorded ourselves: a pid counts only with the start time it was recorded with.

Each run announces itself in the user's state folder, so that `kill --all` and `status` find batches of every results
folder; the announcement is only a pointer, the batch's own files are the record.
"""

import hashlib
import os
import socket
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from terminalbench.errors import TbenchError
from terminalbench.experiments.batch import Batch
from terminalbench.files import lock_owner, read_json, start_ticks, write_json


class Worker(msgspec.Struct, frozen=True):
    """Who runs a job: enough to find the process again, and to be sure that it is the same one."""

    job: str
    profile: str
    pid: int
    group: int
    host: str
    started_at: str
    start_ticks: int | None
    command: list[str]


class LiveProcess(msgspec.Struct, frozen=True):
    """A process of ours that is alive: the runner of a batch, or one of its Harbor processes."""

    kind: str
    pid: int
    start_ticks: int
    batch: str
    since: str
    job: str | None = None

    @property
    def alive(self) -> bool:
        """Whether this very process still runs."""
        return start_ticks(self.pid) == self.start_ticks

    @property
    def user(self) -> int | None:
        """Whose it is; None when it is gone."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return None
        return int(status.split("\nUid:", 1)[1].split()[0])


def live_processes(batch: Batch) -> list[LiveProcess]:
    """The processes of a batch that are alive on this machine: first its runner, then its Harbor processes."""
    found = []
    owner = lock_owner(batch.lock)
    if owner is not None and owner.start_ticks is not None and _is_here(owner.host):
        found.append(LiveProcess("runner", owner.pid, owner.start_ticks, str(batch.folder), owner.since))
    for worker in _workers(batch):
        if worker.start_ticks is not None and _is_here(worker.host):
            place = str(batch.folder)
            found.append(LiveProcess("harbor", worker.pid, worker.start_ticks, place, worker.started_at, worker.job))
    return [process for process in found if process.alive]


def forget_dead_workers(batch: Batch) -> None:
    """Remove the records of processes that are gone."""
    alive = {process.job for process in live_processes(batch)}
    for file in (batch.folder / "workers").glob("*.json"):
        if file.stem not in alive:
            file.unlink(missing_ok=True)


def _workers(batch: Batch) -> Iterator[Worker]:
    for file in sorted((batch.folder / "workers").glob("*.json")):
        try:
            yield read_json(file, Worker)
        except (OSError, TbenchError):
            continue  # it is being replaced, or torn: the process it named is found by the next look


def _is_here(host: str) -> bool:
    return host == socket.gethostname()


def state_folder() -> Path:
    """Where runs announce themselves: the user's state folder."""
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
