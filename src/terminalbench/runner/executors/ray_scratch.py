"""The folder of a job on a node that does not see the runner's disk: one of this user alone, for its time.

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
from collections.abc import Iterable, Mapping
from pathlib import Path

from terminalbench.errors import TbenchError
from terminalbench.experiments.batch import Batch
from terminalbench.modes import make_folder, make_own_folder
from terminalbench.runner.environment import PASSED_ON
from terminalbench.runner.executors import death_signal
from terminalbench.runner.executors.ray_payload import BATCH, PROJECT
from terminalbench.runner.executors.ray_wire import PayloadEntry
from terminalbench.runner.kill import end_containers

_LOCK = ".lock"
_SPARE_BYTES = 64 << 20
_MB = 1 << 20
_OF_THE_RUN = ("LANG", "LC_", "TZ", "TERMINALBENCH_")
"""The basics of a process that are the runner's; all others are the node's own."""
_MODULE = "terminalbench.runner.executors.ray_scratch"


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


if __name__ == "__main__":
    end_containers(Batch(Path(sys.argv[1]) / BATCH), sys.argv[2])
    shutil.rmtree(sys.argv[1], ignore_errors=True)
