"""Locks that name their owner, and which process of this machine an owner was."""

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from terminalbench.decode import decode
from terminalbench.errors import TbenchError
from terminalbench.files import naming, opened

_NAME_SEC = 10.0
_STOPPED_SEC = 1.0
"""A writer that holds a lock for longer is taken for stopped by those who need not wait."""


class Owner(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who holds a lock."""

    pid: int
    host: str
    since: str
    what: str = ""
    start_ticks: int | None = None

    def __str__(self) -> str:
        return f"{self.what or 'a process'} (pid {self.pid} on {self.host}, since {self.since})"


class LockHeld(TbenchError):
    """Another live process holds the lock; `owner` is what it said of itself, if it could be read."""

    def __init__(self, path: Path, owner: Owner | None) -> None:
        super().__init__(f"in use by {owner or 'another process'}", where=str(path))
        self.owner = owner


@contextlib.contextmanager
def lock(path: Path, what: str = "") -> Generator[Owner]:
    """Hold an exclusive advisory lock on `path`, naming ourselves in it; raise `LockHeld` if it is taken.

    The kernel releases the lock when its holder dies, so a lock file left behind is taken over.
    """
    with opened(path) as handle:
        _take(handle, path, _NAME_SEC)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        owner = Owner(os.getpid(), socket.gethostname(), since, what, start_ticks(os.getpid()))
        with naming(path):
            os.ftruncate(handle, 0)
            os.pwrite(handle, msgspec.json.encode(owner) + b"\n", 0)
        try:
            yield owner
        finally:
            os.ftruncate(handle, 0)


@contextlib.contextmanager
def changing(path: Path, *, wait: bool = True, held_up: Callable[[Path], None] | None = None) -> Generator[None]:
    """Wait for the right to change `path`, which several processes read, change and write; held by a file beside it.

    Without `wait`, no longer than a writer takes that works: one that is stopped is LockHeld. `held_up` is told the
    lock, once, where it takes longer than that.
    """
    lock_file = path.with_suffix(".lock")
    with opened(lock_file) as handle:
        try:
            _take(handle, lock_file, _STOPPED_SEC if held_up is not None or not wait else 0.0)
        except LockHeld:
            if not wait:
                raise
            if held_up is not None:
                held_up(lock_file)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def is_stopped(pid: int | None) -> bool:
    """Return whether a process of this machine is stopped, by SIGSTOP or a debugger."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "Tt"
    except (OSError, IndexError):
        return False


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in kernel ticks: with its pid this names a process for good. None: there is
    none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ended = fields[0] in "ZX" and int(fields[17]) <= 1  # its first thread may go before the others
        return None if ended else int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def _take(handle: int, path: Path, patience_sec: float) -> None:
    """Lock `handle`, or say who holds it.

    Its new owner may not have written its name yet, and one that ends takes it out first: who is not named is waited
    for, and a lock that becomes free meanwhile is taken.
    """
    deadline = time.monotonic() + patience_sec
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = living_owner(path)
            if owner is not None or time.monotonic() > deadline:
                raise LockHeld(path, owner) from None
        time.sleep(0.01)


def living_owner(path: Path) -> Owner | None:
    """Return who holds a lock, unless that process of this machine is gone; of another machine its word is taken."""
    owner = lock_owner(path)
    here = owner is not None and owner.host == socket.gethostname()
    return None if owner is not None and here and start_ticks(owner.pid) != owner.start_ticks else owner


def lock_owner(path: Path) -> Owner | None:
    """Return who `path` says holds it; None when nobody is named or the text is unreadable."""
    try:
        return decode(path.read_bytes(), Owner)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
