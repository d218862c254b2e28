"""The time that all who share a file agree on: seconds since 1970 (UTC) that no jump of a machine's clock moves."""

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import asyncio

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class SharedClock(msgspec.Struct, frozen=True):
    """One moment as the machine that began a file saw it: the time of day, and the clock that only goes forward.

    Processes of the same boot of that machine count on from it by the forward clock: setting the time neither ends nor
    extends a run. Every other machine, and the same one after a reboot, takes the time of day.
    """

    boot: str
    forward: float
    wall: float

    @classmethod
    def here(cls) -> "SharedClock":
        """A clock that starts now, on this machine."""
        return cls(boot_id(), time.monotonic(), time.time())

    def now(self) -> float:
        """Seconds since 1970, by this clock."""
        same = self.boot and self.boot == boot_id()
        return self.wall + time.monotonic() - self.forward if same else time.time()


ASLEEP_SEC = 5.0
"""One who counts every second and finds that more has passed was stopped, or had no processor."""

_SLEPT_SEC = 1.0


@dataclass
class AwakeClock:
    """Seconds in which this process ran. A time in which it was stopped, or its machine, counts as one second:

    one who was not awake has not waited in vain for what others did not do. Some thread has to ask every second.
    """

    forward: Callable[[], float] = time.monotonic
    _total: float = 0.0
    _last: float | None = None
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self) -> float:
        """The seconds since the first time that somebody asked."""
        with self._turn:
            now = self.forward()
            step = 0.0 if self._last is None else max(0.0, now - self._last)
            self._last = now
            self._total += step if step <= ASLEEP_SEC else _SLEPT_SEC
            return self._total


def give_time(loop: "asyncio.AbstractEventLoop", clock: AwakeClock) -> None:
    """Have an event loop go by the clock from here on: its time-outs do not end what could not work."""
    ahead = loop.time() - clock()
    with contextlib.suppress(AttributeError):  # a loop that is not Python's own keeps its time
        loop.time = lambda: ahead + clock()


def take_time_back(loop: "asyncio.AbstractEventLoop") -> None:
    """Have an event loop go by its own time again: the clock stands still when nobody asks it every second."""
    with contextlib.suppress(AttributeError):
        del loop.time


@cache
def boot_id() -> str:
    """Return what names this boot of this machine; empty when the system does not say."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
