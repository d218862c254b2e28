"""The time at which a run will be over, its progress in one line, and why its trials wait. Pure."""

from heapq import heapify, heapreplace
from statistics import pstdev

from terminalbench.experiments.plan import HARBOR_PARALLEL
from terminalbench.live.model import LiveProfile, LiveTrial, WaitingTrial
from terminalbench.live.state import LiveState
from terminalbench.text.numbers import cost, duration, noun, plural
from terminalbench.text.outcomes import word

_LATE = 0.25
"""A trial that has taken longer than it should takes so much of its age more."""
_QUANTILES = 32
_SCHEDULED = 256
"""Trials whose places are worked out one by one; those before them only fill the lanes."""
_GOLDEN = 0.6180339887498949


def eta_sec(state: LiveState, now: float) -> float | None:
    """Seconds until the last trial ends, by this batch's own durations.

    None while a profile that has trials to run has ended none: the others do not tell how long they take it. None too
    while a profile is paused that has trials to start: a person says when it goes on.

    A trial takes what its task took this profile so far; else what the task took the others, times how much slower
    this profile is than they on the tasks it has done; else what a trial usually takes it. What ended first is what
    was short: the ages of running trials count as well. Durations are as uneven as those seen so far, so that the last
    long trial is waited for. Profiles run side by side as planned, each with its own trials at once: with a budget one
    at a time until its first cost is known, and no more than its share has room for.
    """
    if state.plan is None or any(profile.planned is None for profile in state.profiles.values()):
        return None
    running: dict[str, list[LiveTrial]] = {}
    for trial in state.running:
        running.setdefault(trial.profile, []).append(trial)
    shut, spread = state.shut, _spread(state)
    now_running, later = [], []
    for profile in state.profiles.values():
        mine = running.get(profile.key, [])
        to_start = profile.key not in shut and profile.done + len(mine) < (profile.planned or 0)
        if not mine and not to_start:
            continue  # it has nothing left to do
        if to_start and state.limits.told.why_paused(profile.key) is not None:
            return None
        if not profile.durations:
            return None
        left = _left_sec(state, profile, mine, now, spread, shut=profile.key in shut)
        (now_running if mine else later).append(left)
    return _packed(now_running, later, state.plan.settings.profiles_parallel or len(state.profiles))


def _typical(state: LiveState, like: LiveProfile) -> float:
    """The seconds of a trial in profiles of the same kind: with a model, or without. One has ended in `like` itself."""
    timed = [profile for profile in state.profiles.values() if profile.durations and profile.free == like.free]
    return sum(profile.seconds for profile in timed) / sum(len(profile.durations) for profile in timed)


def _spread(state: LiveState) -> list[float]:
    """Return how uneven trials are: some durations of each profile, in means of that profile, sorted."""
    found: list[float] = []
    for profile in state.profiles.values():
        mean = profile.mean_sec
        if mean:
            many = len(profile.durations)
            some = min(many, _QUANTILES)
            found += [profile.durations[(2 * i + 1) * many // (2 * some)] / mean for i in range(some)]
    return sorted(found) or [1.0]


def _left_sec(
    state: LiveState, profile: LiveProfile, running: list[LiveTrial], now: float, spread: list[float], *, shut: bool
) -> float:
    """Seconds until a profile is through, by its ended trials and by what its running ones already show.

    Nothing new starts in one that is `shut`.
    """
    typical, ahead = _typical(state, profile), profile.ahead
    ages = [max(0.0, now - trial.started) if trial.started is not None else 0.0 for trial in running]
    tasks = [(trial.dataset, trial.task) for trial in running]
    means = [(state.tally.own_sec(profile.key, task), state.tally.others_sec(profile.key, task)) for task in tasks]
    usual = (profile.seconds + sum(ages)) / len(profile.durations)
    slower = ahead.paced_sec / ahead.same_sec if ahead.same_sec > 0 else 1.0
    known = [(age, others) for age, (_, others) in zip(ages, means, strict=True) if others]
    taken = ahead.paced_sec + sum(max(age, slower * others) for age, others in known)
    same = ahead.same_sec + sum(others for _, others in known)
    factor = taken / same if same > 0 else usual / typical if typical > 0 else 1.0
    uneven = max(_LATE, min(1.0, pstdev(spread)))
    expected, still = [], []
    for age, (own, others) in zip(ages, means, strict=True):
        seconds = own if own is not None else usual if others is None else factor * others
        expected.append(seconds)
        still.append(max(seconds - age, age * (uneven if own is None and others is None else _LATE)))
    if shut:
        return max(still, default=0.0)
    work = max(0.0, ahead.own_sec + ahead.task_sec * factor + ahead.blind * usual - sum(expected))
    waiting = max(0, (profile.planned or 0) - profile.done - len(running))
    planned = state.plan.own_parallel(profile.key) or state.plan.settings.parallel if state.plan is not None else 0
    at_once = state.at_once.get(profile.key) or state.at_once.get(None) or planned
    lanes = max(at_once, len(running)) if at_once else max(profile.peak, 1 if running else HARBOR_PARALLEL)
    affords = state.limits.affords(profile.key)
    if affords is not None and affords < waiting:
        waiting, work = affords, work * affords / waiting
    alone = state.limits.one_by_one(profile.key)
    if alone is None:
        return _through(still, waiting, work, lanes, spread)
    if alone.unknown:  # what has ended told no cost: the next ones probably tell none either
        return _through(still, waiting, work, 1, spread)
    first = 0 if running else min(1, waiting)  # the others start when it has told its cost
    wait = max(still, default=0.0) + (first * work / waiting if waiting else 0.0)
    rest = waiting - first
    return wait + _through([], rest, work * rest / waiting if waiting else 0.0, lanes, spread)


def _through(still: list[float], waiting: int, work: float, lanes: int, spread: list[float]) -> float:
    """Return when the last of `waiting` trials ends that take `work` seconds together, beside those that run already.

    Their durations are as uneven as `spread`, mixed evenly: the same picture at every call.
    """
    if not waiting:
        return max(still, default=0.0)
    one_by_one = min(waiting, _SCHEDULED)
    drawn = [spread[int(len(spread) * ((0.5 + i * _GOLDEN) % 1.0))] for i in reversed(range(one_by_one))]
    scale = work / waiting * one_by_one / (sum(drawn) or 1.0)
    before = work * (1 - one_by_one / waiting) / max(lanes, len(still))
    return before + _packed(still, [length * scale for length in drawn], lanes)


def _packed(running: list[float], waiting: list[float], lanes: int) -> float:
    """Return when the last is through: what waits starts, one after the other, where something ends first."""
    ends = running + [0.0] * max(0, lanes - len(running))
    heapify(ends)
    for length in waiting:
        heapreplace(ends, ends[0] + length)
    return max(ends, default=0.0)


def run_line(state: LiveState, now: float, since: float | None = None) -> str:
    """The progress of a run: done of planned, outcomes, running, spend, time left, waiting. `now` is the time of day.

    `since` is when the run was started; by default when the first event came.
    """
    total = state.total
    began = state.began if since is None else since
    parts = [f"{total.progress} {noun(total.planned, 'trial')}"]
    parts += [alert.line for alert in state.alerts.worst_first()]
    parts += [f"{number} {word(name)}" for name, number in total.counts.items()]
    parts += [f"{total.running} running"] if total.running else []
    parts += waiting_lines(state, now)
    if total.cost_usd or total.cost_unknown:
        parts.append(cost(total.spent_usd, total.cost_unknown))
    left = eta_sec(state, now)
    if left is not None and total.done < (total.planned or 0):
        parts.append(f"about {duration(left)} left")
    parts += [f"{state.to_start} waiting"] if state.to_start else []
    parts += [*state.limits.over, *state.limits.shared_lines]
    elapsed = duration(now - began) if began is not None else ""
    return f"{elapsed}  {', '.join(parts)}".strip()


def waiting_lines(state: LiveState, now: float) -> list[str]:
    """Return where nothing new starts, and what trials wait for."""
    shut = {profile for profile, _ in state.held}
    where = f" in {', '.join(key for key in state.profiles if key in shut)}" if len(shut) < len(state.profiles) else ""
    runs = any(trial.profile in shut for trial in state.running)
    why = "waiting for the running trials" if runs else "; ".join(dict.fromkeys(reason for _, reason in state.held))
    held = [f"nothing new starts{where}: {why}"] if shut else []
    return [*held, *wait_lines(state, now)]


def wait_lines(state: LiveState, now: float) -> list[str]:
    """Return what trials wait for, one line per reason, and which profiles wait for their turn."""
    by_reason: dict[str, list[WaitingTrial]] = {}
    for waiting in state.waiting:
        by_reason.setdefault(waiting.reason, []).append(waiting)
    lines = [_wait(reason, found, now) for reason, found in by_reason.items()]
    return [*lines, f"waiting for their turn: {', '.join(state.in_line)}"] if state.in_line else lines


def _wait(reason: str, found: list[WaitingTrial], now: float) -> str:
    """Return how long until the next of these trials starts, if that is known, and how many there are."""
    left = [sec for waiting in found if (sec := waiting.left_sec(now)) is not None]
    many = f" ({plural(len(found), 'trial')})" if len(found) > 1 else ""
    return f"waiting{f' {duration(min(left))}' if left else ''}: {reason}{many}"
