"""When a run will be over, and how sure a pass rate is: small pure computations of the live view."""

from dataclasses import dataclass
from heapq import heapify, heapreplace
from math import sqrt

from terminalbench.watch.model import LiveProfile, LiveTrial
from terminalbench.watch.state import LiveState

HARBOR_PARALLEL = 4
"""Trials Harbor runs at once in a job when nobody says otherwise."""
_LATE = 0.1
_Z95 = 1.959963984540054


def wilson(passed: int, measured: int, z: float = _Z95) -> tuple[float, float] | None:
    """Wilson's interval of a rate, as fractions; None when nothing was measured."""
    if not measured:
        return None
    rate, z2 = passed / measured, z * z
    middle = (rate + z2 / (2 * measured)) / (1 + z2 / measured)
    half = z / (1 + z2 / measured) * sqrt(rate * (1 - rate) / measured + z2 / (4 * measured * measured))
    return max(0.0, middle - half), min(1.0, middle + half)


def eta_sec(state: LiveState, now: float) -> float | None:
    """Seconds until the last trial ends, by this batch's own durations; None while none is known.

    A trial takes what its task took this profile so far; else what the task took the others, times how much slower
    this profile is than they on the tasks it has done; else what a trial usually takes it. Profiles run side by side
    as planned, each with its own trials at once.
    """
    typical = _typical(state)
    if typical is None:
        return None
    settings = state.plan.settings if state.plan is not None else {}
    parallel = int(settings.get("parallel") or 0)
    running: dict[str, list[LiveTrial]] = {}
    for trial in state.running:
        running.setdefault(trial.profile, []).append(trial)
    shut = {profile for profile, _ in state.held}
    now_running, later = [], []
    for profile in state.profiles.values():
        mine = running.get(profile.key, [])
        pace = Pace.of(state, profile, mine, typical, now)
        left = pace.left_sec(mine, now, parallel, shut=profile.key in shut)
        (now_running if mine else later).append(left)
    side_by_side = int(settings.get("profiles_parallel") or 0) or len(state.profiles)
    return _scheduled(now_running, later if not shut else [], side_by_side)


def _typical(state: LiveState) -> float | None:
    """What a trial takes, over all profiles."""
    count = sum(len(profile.durations) for profile in state.profiles.values())
    return sum(profile.seconds for profile in state.profiles.values()) / count if count else None


@dataclass(frozen=True)
class Pace:
    """How fast a profile is: seconds of a usual trial, and its factor on what a task takes on average."""

    state: LiveState
    profile: LiveProfile
    usual_sec: float
    factor: float

    @classmethod
    def of(cls, state: LiveState, profile: LiveProfile, running: list[LiveTrial], typical: float, now: float) -> "Pace":
        """The pace of a profile; before its first trial has ended, what its running ones already show."""
        if profile.mean_sec is not None:
            same = profile.forecast.same_sec
            return cls(state, profile, profile.mean_sec, profile.seconds / same if same > 0 else 1.0)
        oldest = max((_age(trial, now) for trial in running), default=0.0)
        usual = max(typical, oldest)
        return cls(state, profile, usual, usual / typical if typical > 0 else 1.0)

    def left_sec(self, running: list[LiveTrial], now: float, parallel: int, *, shut: bool) -> float:
        """Seconds until the profile is through; nothing new starts in one that is `shut`."""
        expected = [self.expected_sec(trial) for trial in running]
        still = [max(sec - _age(t, now), _LATE * sec) for sec, t in zip(expected, running, strict=True)]
        longest = max(still, default=0.0)
        if shut:
            return longest
        ahead = self.profile.forecast
        work = ahead.own_sec + ahead.task_sec * self.factor + ahead.blind * self.usual_sec
        lanes = max(parallel, len(running)) if parallel else max(self.profile.peak, 1 if running else HARBOR_PARALLEL)
        return max((work - sum(expected) + sum(still)) / lanes, longest)

    def expected_sec(self, trial: LiveTrial) -> float:
        """What a trial of the profile probably takes."""
        cells = self.state.tally.by_task.get((trial.dataset, trial.task), [])
        own = next((cell for cell in cells if cell.profile == trial.profile and cell.timed), None)
        if own is not None:
            return own.seconds / own.timed
        timed = sum(cell.timed for cell in cells)
        return self.factor * sum(cell.seconds for cell in cells) / timed if timed else self.usual_sec


def _age(trial: LiveTrial, now: float) -> float:
    return max(0.0, now - trial.started) if trial.started is not None else 0.0


def _scheduled(running: list[float], waiting: list[float], side_by_side: int) -> float:
    """When the last profile is through: a waiting one starts when a running one ends."""
    ends = running + [0.0] * max(0, side_by_side - len(running))
    heapify(ends)
    for left in waiting:
        heapreplace(ends, ends[0] + left)
    return max(0.0, *ends)
