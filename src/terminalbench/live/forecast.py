"""When a run will be over: pure computations on the state of a batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from statistics import pstdev

from terminalbench.experiments.plan import HARBOR_PARALLEL
from terminalbench.live.model import LiveProfile, LiveTrial
from terminalbench.live.state import LiveState

_LATE = 0.25
"""A trial that has taken longer than it should takes so much of its age more."""
_QUANTILES = 32
_SCHEDULED = 256
"""Trials whose places are worked out one by one; those before them only fill the lanes."""
_GOLDEN = 0.6180339887498949


def eta_sec(state: LiveState, now: float) -> float | None:
    """Seconds until the last trial ends, by this batch's own durations; None while nothing is known of a profile.

    A trial takes what its task took this profile so far; else what the task took the others, times how much slower
    this profile is than they on the tasks it has done; else what a trial usually takes it. What ended first is what
    was short: the ages of running trials count as well. Durations are as uneven as those seen so far, so that the last
    long trial is waited for. Profiles run side by side as planned, each with its own trials at once.
    """
    if state.plan is None or any(profile.planned is None for profile in state.profiles.values()):
        return None
    settings = state.plan.settings
    parallel = settings.parallel
    running: dict[str, list[LiveTrial]] = {}
    for trial in state.running:
        running.setdefault(trial.profile, []).append(trial)
    shut = state.shut
    spread = _spread(state)
    now_running, later = [], []
    for profile in state.profiles.values():
        mine = running.get(profile.key, [])
        if not mine and (profile.key in shut or profile.done >= (profile.planned or 0)):
            continue  # it has nothing left to do
        pace = Pace.of(state, profile, mine, now)
        if pace is None:
            return None
        at_once = state.at_once.get(profile.key) or state.at_once.get(None) or parallel
        left = pace.left_sec(mine, now, at_once, spread, shut=profile.key in shut)
        (now_running if mine else later).append(left)
    side_by_side = settings.profiles_parallel or len(state.profiles)
    return _scheduled(now_running, later, side_by_side)


def _typical(state: LiveState, like: LiveProfile) -> float | None:
    """What a trial takes in the profiles of the same kind: with a model, or without."""
    timed = [profile for profile in state.profiles.values() if profile.durations and profile.free == like.free]
    count = sum(len(profile.durations) for profile in timed)
    return sum(profile.seconds for profile in timed) / count if count else None


def _spread(state: LiveState) -> list[float]:
    """How uneven trials are: some durations of each profile, in means of that profile, sorted."""
    found: list[float] = []
    for profile in state.profiles.values():
        mean = profile.mean_sec
        if mean:
            many = len(profile.durations)
            some = min(many, _QUANTILES)
            found += [profile.durations[(2 * i + 1) * many // (2 * some)] / mean for i in range(some)]
    return sorted(found) or [1.0]


@dataclass(frozen=True)
class Pace:
    """How fast a profile is: seconds of a usual trial, and its factor on what a task takes on average."""

    state: LiveState
    profile: LiveProfile
    usual_sec: float
    factor: float

    @classmethod
    def of(cls, state: LiveState, profile: LiveProfile, running: list[LiveTrial], now: float) -> "Pace | None":
        """The pace of a profile, by its trials that ended and by what its running ones already show, if anything."""
        typical = _typical(state, profile)
        if typical is None:
            return None
        ages = [_age(trial, now) for trial in running]
        ahead = profile.ahead
        many = len(profile.durations)
        usual = (profile.seconds + sum(ages)) / many if many else max([typical, *ages])
        factor = ahead.paced_sec / ahead.same_sec if ahead.same_sec > 0 else 1.0
        known = [
            (age, mean) for trial, age in zip(running, ages, strict=True) if (mean := state.tally.others_sec(trial))
        ]
        taken = ahead.paced_sec + sum(max(age, factor * mean) for age, mean in known)
        same = ahead.same_sec + sum(mean for _, mean in known)
        return cls(state, profile, usual, taken / same if same > 0 else usual / typical if typical > 0 else 1.0)

    def left_sec(
        self, running: list[LiveTrial], now: float, parallel: int, spread: Sequence[float], *, shut: bool
    ) -> float:
        """Seconds until the profile is through; nothing new starts in one that is `shut`."""
        expected = [self.expected_sec(trial) for trial in running]
        late = max(_LATE, min(1.0, pstdev(spread)))
        still = [
            max(sec - _age(trial, now), _age(trial, now) * (_LATE if self.knows(trial) else late))
            for sec, trial in zip(expected, running, strict=True)
        ]
        if shut:
            return max(still, default=0.0)
        ahead = self.profile.ahead
        work = max(0.0, ahead.own_sec + ahead.task_sec * self.factor + ahead.blind * self.usual_sec - sum(expected))
        waiting = max(0, (self.profile.planned or 0) - self.profile.done - len(running))
        lanes = max(parallel, len(running)) if parallel else max(self.profile.peak, 1 if running else HARBOR_PARALLEL)
        return _through(still, waiting, work, lanes, spread)

    def knows(self, trial: LiveTrial) -> bool:
        """Whether its task was done before, by whomever."""
        return self.state.tally.own_sec(trial) is not None or self.state.tally.others_sec(trial) is not None

    def expected_sec(self, trial: LiveTrial) -> float:
        """What a trial of the profile probably takes."""
        own = self.state.tally.own_sec(trial)
        if own is not None:
            return own
        others = self.state.tally.others_sec(trial)
        return self.usual_sec if others is None else self.factor * others


def _through(still: Sequence[float], waiting: int, work: float, lanes: int, spread: Sequence[float]) -> float:
    """When the last of `waiting` trials ends that take `work` seconds together, beside those that run already.

    Their durations are as uneven as `spread`, mixed evenly: the same picture at every call.
    """
    ends = list(still) + [0.0] * max(0, lanes - len(still))
    heapify(ends)
    if not waiting:
        return max(ends)
    one_by_one = min(waiting, _SCHEDULED)
    drawn = [spread[int(len(spread) * ((0.5 + i * _GOLDEN) % 1.0))] for i in reversed(range(one_by_one))]
    scale = work / waiting * one_by_one / (sum(drawn) or 1.0)
    before = work * (1 - one_by_one / waiting) / len(ends)
    for length in drawn:
        heapreplace(ends, ends[0] + length * scale)
    return before + max(ends)


def _age(trial: LiveTrial, now: float) -> float:
    return max(0.0, now - trial.started) if trial.started is not None else 0.0


def _scheduled(running: list[float], waiting: list[float], side_by_side: int) -> float:
    """When the last profile is through: a waiting one starts when a running one ends."""
    ends = running + [0.0] * max(0, side_by_side - len(running))
    heapify(ends)
    for left in waiting:
        heapreplace(ends, ends[0] + left)
    return max(ends, default=0.0)
