"""What somebody told a live run: a file in the batch, written by `tbench ctl` and the watchdog, read by every Harbor.

A profile called `*` means all of them. Only new trials are kept back by a pause, a smaller number at once or a stop;
running trials are ended by name.
"""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from terminalbench.files import write_json

ALL = "*"


class Control(msgspec.Struct, omit_defaults=True):
    """Why profiles are paused or stopped, how many trials each may run at once, which trials are to be ended."""

    paused: dict[str, str] = {}
    stopped: dict[str, str] = {}
    parallel: dict[str, int] = {}
    cancel: dict[str, str] = {}
    requeue: dict[str, str] = {}

    def why_paused(self, profile: str) -> str | None:
        """Why no trial of a profile starts for now, or None."""
        return self.paused.get(profile) or self.paused.get(ALL)

    def why_stopped(self, profile: str) -> str | None:
        """Why no trial of a profile starts any more, or None."""
        return self.stopped.get(profile) or self.stopped.get(ALL)

    def at_once(self, profile: str) -> int | None:
        """How many trials of a profile may run at once; None: as many as the run was started with."""
        return self.parallel.get(profile, self.parallel.get(ALL))


class ControlFile:
    """The file on disk. No file means that nobody said anything."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Control:
        """What is in force now."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=Control)
        except FileNotFoundError:
            return Control()

    def clear(self) -> None:
        """Forget what was said to an earlier run of the batch."""
        self.path.unlink(missing_ok=True)

    def change(self, change: Callable[[Control], None]) -> None:
        """Read, change and write under a lock: several processes may do so at once."""
        handle = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            found = self.read()
            change(found)
            write_json(self.path, found)
        finally:
            os.close(handle)
