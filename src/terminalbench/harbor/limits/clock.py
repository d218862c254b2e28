"""The time that all who share a file agree on: seconds since 1970 (UTC) that no jump of a machine's clock moves."""

import time
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


@cache
def boot_id() -> str:
    """What names this boot of this machine; empty when the system does not say."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
