"""`times.json` in a trial folder: the moments between its phases by two clocks, as the plugin saw them.

Harbor's result has times of day. Where in a phase the time of day was set, or Harbor's process was stopped, or its
machine slept, the clock that only goes forward disagrees with it: then nobody knows how long that phase took.
"""

import time
from itertools import pairwise
from pathlib import Path

import msgspec

from terminalbench.json_files import decode_plain

TIMES = "times.json"
_SIZE_LIMIT = 1 << 20
_TOLERANCE_SEC = 1.0
_TOLERANCE_SHARE = 0.001  # twice what a clock that is being corrected gains or loses
_PHASES = {
    "start": ("environment_sec", "agent_setup_sec"),
    "environment-start": ("environment_sec", "agent_setup_sec"),
    "agent-start": ("agent_sec",),
    "verification-start": ("verifier_sec",),
}
"""The fields of `Phases` that lie between a moment and the next."""


class Moment(msgspec.Struct, frozen=True):
    """An event, its time of day (seconds since 1970), and the seconds in which Harbor's process ran."""

    what: str
    wall: float
    forward: float

    @classmethod
    def now(cls, what: str, forward: float) -> "Moment":
        """This moment."""
        return cls(what, time.time(), forward)


class Times(msgspec.Struct, frozen=True):
    """The moments of a trial, from its start to its end."""

    moments: list[Moment] = []

    @property
    def jumped(self) -> bool:
        """True when the time of day was set, or Harbor did not run, while the trial did."""
        return any(_jumped(*pair) for pair in pairwise(self.moments))

    @property
    def cancelled(self) -> bool:
        """True when the trial was interrupted."""
        return any(moment.what == "cancel" for moment in self.moments)

    @property
    def unknown(self) -> set[str]:
        """The fields of `Phases` that times of day do not tell."""
        return {name for pair in pairwise(self.moments) if _jumped(*pair) for name in _PHASES.get(pair[0].what, ())}


def _jumped(first: Moment, second: Moment) -> bool:
    forward = second.forward - first.forward
    return abs(second.wall - first.wall - forward) > _TOLERANCE_SEC + _TOLERANCE_SHARE * forward


def read_times(trial_dir: Path) -> Times:
    """The note in a trial folder; empty where there is none: older trials have their times of day."""
    return decode_plain(f"{trial_dir}/{TIMES}", Times, _SIZE_LIMIT) or Times()
