"""A job on a node of a Ray cluster: the Harbor process that the local executor would start, started there.

A node that does not see the runner's disk has a folder for the job: one of this user alone, for its time.

    <temporary files>/tbench-<user>/<batch>.lock          held by each job of the batch on this node
                                    <batch>/files/        contents by their digests, each sent once
                                    <batch>/<job>/        the place of one job, see `ray_payload`

A job's place goes when it ends; should its process be killed, when Harbor has ended (`death_signal.ORPHANED` runs this
module); should the whole node be killed, when the next such job begins on it. The shared files go with the last job.
"""

import fcntl
import hashlib
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from terminalbench.errors import TbenchError
from terminalbench.experiments.batch import Batch
from terminalbench.harbor.jobs import harbor_program
from terminalbench.modes import make_folder, make_own_folder
from terminalbench.runner.environment import PASSED_ON
from terminalbench.runner.executors import death_signal
from terminalbench.runner.executors.base import JobRun
from terminalbench.runner.executors.local import LocalExecutor
from terminalbench.runner.executors.ray_messages import PayloadEntry, entries
from terminalbench.runner.executors.ray_outbox import Outbox, Questions
from terminalbench.runner.executors.ray_payload import BATCH, PROJECT, SOCKET
from terminalbench.runner.kill import end_containers
from terminalbench.version import __version__

_LOCK = ".lock"
_SPARE_BYTES = 64 << 20
_MB = 1 << 20
_OF_THE_RUN = ("LANG", "LC_", "TZ", "TERMINALBENCH_")
"""The basics of a process that are the runner's; all others are the node's own."""
_MODULE = "terminalbench.runner.executors.ray_node"


class JobScratch:
    """The place of one job. `close` removes it."""

    def __init__(self, batch: str) -> None:
        above = Path(tempfile.gettempdir()) / f"tbench-{os.geteuid()}"
        make_own_folder(above)
        _sweep(above)
        self._batch = above / batch
        self._lock = _held(self._batch)
        self._files = self._batch / "files"
        make_folder(self._files)
        self.folder = Path(tempfile.mkdtemp(dir=self._batch, prefix="job-"))
        self.batch = Batch(self.folder / BATCH)

    def lacking(self, entries: Iterable[PayloadEntry]) -> list[str]:
        """The digests whose content is not here yet. A `TbenchError` when there is no room for it."""
        missing = {e.digest: e.size for e in entries if e.digest is not None and not self._file(e.digest).exists()}
        free = shutil.disk_usage(self._batch).free
        if sum(missing.values()) + _SPARE_BYTES > free:
            needed = f"{sum(missing.values()) // _MB} MB of a job's files, and {_SPARE_BYTES // _MB} MB to work"
            what = f"{free // _MB} MB are free in {self._batch.parent}, but it needs {needed}"
            raise TbenchError(f"no space on node {os.uname().nodename}: {what}")
        return list(missing)

    def put(self, digest: str, data: bytes, more: bool) -> None:
        """Take the next bytes of a content."""
        part = self.folder / f"{digest}.part"
        with part.open("ab") as stream:
            stream.write(data)
        if more:
            return
        with part.open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != digest:
                raise TbenchError("a file of the job changed while it was sent")
        part.replace(self._file(digest))

    def build(self, entries: Iterable[PayloadEntry]) -> None:
        """Lay out what the job needs."""
        for entry in entries:
            path = self.folder / entry.path
            make_folder(path.parent)
            if entry.link is not None:
                path.symlink_to(entry.link)
            elif entry.digest is None:
                path.mkdir(entry.mode, exist_ok=True)
            else:
                shutil.copyfile(self._file(entry.digest), path)
                path.chmod(entry.mode)

    def environment(self, given: Mapping[str, str], job: str) -> dict[str, str]:
        """The environment of Harbor here: the machine's basics of this node, all else as the runner has it."""
        env = {k: v for k, v in given.items() if not PASSED_ON.fullmatch(k) or k.startswith(_OF_THE_RUN)}
        env |= {k: v for k, v in os.environ.items() if PASSED_ON.fullmatch(k) and not k.startswith(_OF_THE_RUN)}
        own = str(self.folder / PROJECT) if "PYTHONPATH" in given else ""
        path = os.pathsep.join(filter(None, (own, os.environ.get("PYTHONPATH"))))
        env = {**env, "PYTHONPATH": path} if path else env
        return env | {death_signal.ORPHANED: json.dumps([sys.executable, "-P", "-m", _MODULE, str(self.folder), job])}

    def close(self) -> None:
        """Remove it, and what is shared when no other job uses it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        _remove_unused(self._batch, self._lock)
        os.close(self._lock)

    def _file(self, digest: str) -> Path:
        return self._files / digest


def _held(folder: Path) -> int:
    """Hold the lock of a folder, which then is there, together with others."""
    while True:
        handle = os.open(f"{folder}{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(handle, fcntl.LOCK_SH)
        if _is_same(handle, folder):
            make_folder(folder)
            return handle
        os.close(handle)  # it was removed while we waited


def _is_same(handle: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(f"{folder}{_LOCK}"))  # noqa: PTH116
    except FileNotFoundError:
        return False


def _remove_unused(folder: Path, handle: int) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    shutil.rmtree(folder, ignore_errors=True)
    if _is_same(handle, folder):
        Path(f"{folder}{_LOCK}").unlink()


def _sweep(above: Path) -> None:
    """Remove what jobs have left whose processes were killed."""
    for lock in above.glob(f"*{_LOCK}"):
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _remove_unused(lock.with_suffix(""), handle)
        os.close(handle)


LEASE_SEC = 18.0
"""A node that has not heard of the runner for so long ends its job, which the runner may start elsewhere by then."""
_POLL_SEC = 0.1


class NodeJob:
    """An actor with one job. Harbor is a child of its process, and ends with it."""

    def __init__(self) -> None:
        self._local = LocalExecutor()
        self._stop: threading.Event = threading.Event()
        self._now = False
        self._place: JobScratch | None = None
        self._outbox: Outbox | None = None
        self.renew()

    def renew(self) -> None:
        """The runner is there."""
        self._heard_at = time.monotonic()

    def _end_unheard(self) -> None:
        if time.monotonic() - self._heard_at > LEASE_SEC:
            os._exit(1)  # Harbor, which is tied to us, has its time to record

    def host(self, version: str) -> str:
        """Return where it is. An error where terminalbench is another one."""
        if version != __version__:
            raise TbenchError(f"terminalbench is {__version__} on {os.uname().nodename} and {version} at the runner")
        return os.uname().nodename

    def sees(self, token: str, file: str, paths: list[str]) -> bool:
        """Return whether it sees the runner's disk: a random text in a file of the batch, and all that a job names."""
        try:
            return Path(file).read_text() == token and all(Path(path).exists() for path in paths)
        except OSError:
            return False

    def run(self, job: JobRun) -> int:
        """Run the job to its end; its exit code."""
        self.renew()  # it may have waited for long since it was made
        worker = self._local.start(replace(job, argv=[harbor_program(), *job.argv[1:]]))
        while (code := self._local.poll(worker)) is None:
            self._end_unheard()
            if self._stop.wait(_POLL_SEC):
                self._stop.clear()
                self._local.stop(worker, now=self._now)
        self._local.stop(worker, now=True)  # what it has left behind
        return code

    def stop(self, now: bool) -> None:
        """Interrupt it, or end it at once."""
        self._now = self._now or now
        self._stop.set()

    def place(self, batch: str) -> str:
        """Make a place for a job that does not see the runner's disk; its folder."""
        self._place = JobScratch(batch)
        return str(self._place.folder)

    def lacking(self, needed: bytes) -> list[str]:
        """The digests of what is not here yet of a job's files."""
        return self._there.lacking(entries.decode(needed))

    def put(self, digest: str, data: bytes, more: bool) -> None:
        """Take the next bytes of such a file."""
        self._there.put(digest, data, more)

    def run_apart(self, job: JobRun, needed: bytes, moved: dict[str, str]) -> None:
        """Begin the job in its place, from where everything is fetched by `exchange`."""
        place = self._there
        place.build(entries.decode(needed))
        questions = Questions(place.folder / SOCKET)
        self._outbox = outbox = Outbox(place.batch, job.name, moved, questions)
        os.chdir(place.folder / PROJECT)
        here = replace(
            job,
            env=place.environment(job.env, job.name),
            folder=place.batch.job_folder(job.name),
            log=place.batch.job_log(job.name),
        )

        def work() -> None:
            try:
                outbox.end(self.run(here))
            except Exception as error:  # noqa: BLE001  whatever it is, the runner's side waits for it
                outbox.fail(f"{type(error).__name__}: {error}")
                outbox.drained.set()
            while not outbox.drained.wait(_POLL_SEC):
                self._end_unheard()
            questions.close()
            os.chdir("/")
            place.close()
            outbox.closed.set()

        threading.Thread(target=work, name="job", daemon=True).start()

    def exchange(self, replies: bytes) -> bytes:
        """Answers for the job, for what it has to say; see `ray_outbox`."""
        if self._outbox is None:
            raise TbenchError("the job has not started")
        return self._outbox.exchange(replies)

    @property
    def _there(self) -> JobScratch:
        if self._place is None:
            raise TbenchError("the job has no place")
        return self._place


if __name__ == "__main__":
    end_containers(Batch(Path(sys.argv[1]) / BATCH), sys.argv[2])
    shutil.rmtree(sys.argv[1], ignore_errors=True)
