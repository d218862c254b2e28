"""The time that all who share a file agree on: seconds since 1970 (UTC) that no jump of a machine's clock moves."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import msgspec

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


STEP_SEC = 5.0
"""The most that passes for an `AwakeClock` between two ticks, of which there is one a second or more."""


@dataclass
class AwakeClock:
    """Seconds in which this process ran. While it was stopped, or its machine slept, no more than `STEP_SEC` passes:

    one who was not awake has not waited in vain for what others did not do.
    """

    forward: Callable[[], float] = time.monotonic
    total: float = 0.0
    _last: float | None = field(default=None)

    def __call__(self) -> float:
        """The seconds so far, as of the last tick."""
        return self.total

    def tick(self) -> float:
        """Count the time since the last tick; returns how much of it counts."""
        now = self.forward()
        step = 0.0 if self._last is None else min(max(0.0, now - self._last), STEP_SEC)
        self._last = now
        self.total += step
        return step


@cache
def boot_id() -> str:
    """What names this boot of this machine; empty when the system does not say."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
