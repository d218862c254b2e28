"""What changed from iteration to iteration: the content of `delta.json`. Pure.

Only trials of one profile id on one content of a task are compared. A change of a task is noise unless Fisher's exact
test, over all its attempts before, says otherwise after Holm's adjustment for all tasks of the iteration.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from math import fsum
from typing import Any

import msgspec

from terminalbench.analytics.stats import Stratum, fisher_p, holm, mean_interval, paired, stratified
from terminalbench.overnight.iteration_results import IterationResults, ProfileResult, TaskResult
from terminalbench.records.counts import Counts
from terminalbench.records.trial import Outcome, TaskRef
from terminalbench.text.numbers import p_equation, p_value, percent, plural, some

ALPHA = 0.05
"""How often a night in which nothing changes may raise an alert."""
RULE = (
    "An alert is raised when an iteration passes significantly fewer trials than the iterations before it. An exact "
    "test over tasks compares its attempts with all earlier attempts of the same profile id at the same tasks; its "
    "one-sided p must be at or below the level of the comparison. The levels of a night add up to at most 0.05: each "
    "of n planned comparisons gets 0.05 / n; if the number of iterations is not planned, the k-th comparison gets "
    "0.05 / (k (k + 1)). Several profiles share the 0.05."
)


class TaskChange(StrEnum):
    """What became of a task since the iteration before."""

    IMPROVED = "improved"
    REGRESSED = "regressed"
    FLAKY = "flaky"
    """It passes and fails from time to time, and did so again."""
    UNCHANGED = "unchanged"
    NEW = "new"
    """No earlier iteration had it."""
    GONE = "gone"
    """The iteration before had it, this one has not."""
    OTHER_CONTENT = "other_content"
    """The task itself is another one now, or its content is not known: not compared."""
    UNMEASURED = "unmeasured"
    """It has no verdict, in this iteration or before: not compared."""


class TaskDelta(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One task. `before` is the iteration before, `earlier` all of them; `p` is Fisher's of now against `earlier`.

    `noise` is None where nothing is compared, or nothing changed. The trials are paths below the night's folder, those
    that show the change first.
    """

    task_id: str
    dataset: str
    change: TaskChange
    now: Counts = Counts()
    before: Counts | None = None
    earlier: Counts | None = None
    p: float | None = None
    p_adjusted: float | None = None
    noise: bool | None = None
    trials: list[str] = []
    trials_before: list[str] = []


class RegressionAlert(msgspec.Struct, frozen=True):
    """A regression that is more than noise: the one-sided p, the level that it had to reach, the tasks that fell."""

    message: str
    p: float
    level: float
    tasks: list[str]


class ProfileDelta(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One profile against the `previous` iteration that measured it, and against all `earlier` ones.

    `difference` is the mean over the common tasks of the change since the previous one, with Student's interval over
    tasks. The p values are exact, two-sided. `sentence` is what a person reads, `since` the part of it on what changed.
    """

    profile: str
    profile_id: str
    previous: int | None
    earlier: list[int]
    tasks: list[TaskDelta]
    since: str
    sentence: str
    compared: int = 0
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p_previous: float | None = None
    p_earlier: float | None = None
    level: float | None = None
    alert: RegressionAlert | None = None


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """`delta.json`: an iteration against those before it, by their numbers."""

    run_id: str
    iteration: int
    profiles: list[ProfileDelta]
    alpha: float = ALPHA
    alert_rule: str = RULE
    schema_version: int = 1


def delta(now: IterationResults, before: Iterable[IterationResults], planned: int | None) -> Delta:
    """An iteration against those with lower numbers; `planned` is how many the night is to have, if that is known."""
    earlier = sorted((one for one in before if one.iteration < now.iteration), key=lambda one: one.iteration)
    profiles = [_profile(one, earlier, now.iteration, planned, len(now.profiles)) for one in now.profiles]
    return Delta(run_id=now.run_id, iteration=now.iteration, profiles=profiles)


def level(place: int, planned: int | None, profiles: int) -> float:
    """The p that raises an alert at the `place`th comparison of a profile (from 1); see `RULE`."""
    share = ALPHA / max(1, profiles)
    return share / max(1, planned - 1) if planned is not None else share / (place * (place + 1))


def counts_of(profile: ProfileResult) -> dict[TaskRef, Counts]:
    """The attempts at each task."""
    return {task.ref: _counts(task) for task in profile.tasks}


def _counts(task: TaskResult) -> Counts:
    return Counts(task.passed, task.measured)


def _profile(
    now: ProfileResult, before: Sequence[IterationResults], number: int, planned: int | None, profiles: int
) -> ProfileDelta:
    same = [(one.iteration, found) for one in before if (found := one.of(now.profile_id, now.profile)) is not None]
    measured = [(iteration, found) for iteration, found in same if found.measured]
    previous, older = measured[-1] if measured else (None, None)
    earlier = _earlier(now, [found for _, found in same])
    tasks = _judged(_tasks(now, older, earlier, {task.ref for _, found in same for task in found.tasks}))
    compared = [one for one in tasks if one.noise is not None or one.change is TaskChange.UNCHANGED]
    found = ProfileDelta(
        profile=now.profile,
        profile_id=now.profile_id,
        previous=previous,
        earlier=[iteration for iteration, _ in measured],
        tasks=tasks,
        since="",
        sentence="",
        compared=len(compared),
        **_over_tasks(compared),
    )
    exact = stratified(_stratum(one.now, one.earlier) for one in tasks if one.earlier is not None)
    if measured and now.measured and earlier:
        asked = level(len(measured), planned, profiles)
        alert = _alert(found, exact.fewer, asked, number) if exact.fewer <= asked else None
        found = msgspec.structs.replace(found, p_earlier=exact.two_sided, level=asked, alert=alert)
    since = _since(found, now)
    counted = f"{now.passed} of {plural(now.measured, 'measured trial')}"
    sentence = f"{now.profile}: {percent(now.pass_rate)} ({counted}); {since}"
    return msgspec.structs.replace(found, since=since, sentence=sentence)


def _tasks(
    now: ProfileResult, older: ProfileResult | None, earlier: Mapping[TaskRef, Counts], known: Collection[TaskRef]
) -> list[TaskDelta]:
    """Each task of now, and those of the iteration before that it has no more; `known` are those planned before."""
    before = {task.ref: task for task in older.tasks} if older is not None else {}
    found = [_task(task, before.get(task.ref), earlier.get(task.ref), task.ref in known) for task in now.tasks]
    here = {task.ref for task in now.tasks}
    for gone in (ref for ref in before if ref not in here):
        found.append(
            TaskDelta(
                task_id=gone.id,
                dataset=gone.dataset,
                change=TaskChange.GONE,
                before=_counts(before[gone]),
                trials_before=_paths(before[gone]),
            )
        )
    return found


def _earlier(now: ProfileResult, before: Sequence[ProfileResult]) -> dict[TaskRef, Counts]:
    """All earlier attempts at each task of now, as long as the task was the same."""
    content = {task.ref: task.digest for task in now.tasks}
    found: dict[TaskRef, Counts] = {}
    for one in before:
        for task in one.tasks:
            if task.digest is not None and task.measured and content.get(task.ref) == task.digest:
                found[task.ref] = found.get(task.ref, Counts()) + _counts(task)
    return found


def _task(now: TaskResult, before: TaskResult | None, earlier: Counts | None, known: bool) -> TaskDelta:
    count, older = _counts(now), _counts(before) if before is not None else None
    change, p, shows = TaskChange.UNMEASURED, None, (None, None)
    if not known:
        change = TaskChange.NEW
    elif before is not None and older is not None and count.measured and older.measured:
        if now.digest is None or now.digest != before.digest:
            change = TaskChange.OTHER_CONTENT
        elif count.rate == older.rate:
            change = TaskChange.UNCHANGED
        else:
            up = (count.rate or 0.0) > (older.rate or 0.0)
            change = TaskChange.IMPROVED if up else TaskChange.REGRESSED
            shows = (Outcome.PASSED, Outcome.FAILED) if up else (Outcome.FAILED, Outcome.PASSED)
            total = earlier or older
            p = fisher_p((count.passed, count.measured - count.passed), (total.passed, total.measured - total.passed))
    return TaskDelta(
        task_id=now.task_id,
        dataset=now.dataset,
        change=change,
        now=count,
        before=older,
        earlier=earlier,
        p=p,
        trials=_paths(now, shows[0]),
        trials_before=_paths(before, shows[1]) if before is not None else [],
    )


def _judged(tasks: Sequence[TaskDelta]) -> list[TaskDelta]:
    """Return what is noise, after the adjustment for all that changed; a noisy change of one that varies is flaky."""
    found = []
    for one, p in zip(tasks, holm([one.p for one in tasks]), strict=True):
        if p is not None:
            noise = p > ALPHA
            varies = one.now.mixed or (one.earlier is not None and one.earlier.mixed)
            change = TaskChange.FLAKY if noise and varies else one.change
            one = msgspec.structs.replace(one, change=change, p_adjusted=p, noise=noise)
        found.append(one)
    return found


def _paths(task: TaskResult, first: Outcome | None = None) -> list[str]:
    """The folders of its trials, those that ended as `first` before the others."""
    trials = sorted(task.trials, key=lambda trial: trial.outcome is not first)
    return [trial.path for trial in trials if trial.path is not None]


def _stratum(now: Counts, before: Counts | None) -> Stratum:
    older = before or Counts()
    return Stratum(now.passed, now.measured, older.passed, older.measured)


def _over_tasks(compared: Sequence[TaskDelta]) -> dict[str, Any]:
    """Return the change since the previous iteration over the tasks that both measured, by field of the delta."""
    if not compared:
        return {}
    differences = [(one.now.rate or 0.0) - ((one.before or Counts()).rate or 0.0) for one in compared]
    interval = mean_interval(paired(differences), ALPHA, (-1.0, 1.0))
    return {
        "difference": fsum(differences) / len(differences),
        "low": interval.low if interval is not None else None,
        "high": interval.high if interval is not None else None,
        "p_previous": stratified(_stratum(one.now, one.before) for one in compared).two_sided,
    }


def _alert(found: ProfileDelta, p: float, asked: float, number: int) -> RegressionAlert:
    pairs = [(one, one.earlier) for one in found.tasks if one.earlier is not None and one.now.measured]
    fell = [one.task_id for one, earlier in pairs if (one.now.rate or 0.0) < (earlier.rate or 0.0)]
    passed, measured = sum(one.now.passed for one, _ in pairs), sum(one.now.measured for one, _ in pairs)
    # As many passes as the same attempts at the same tasks had on average before.
    usual = fsum((earlier.rate or 0.0) * one.now.measured for one, earlier in pairs)
    message = (
        f"{found.profile}: iteration {number} passed {passed} of {measured}; {usual:.1f} were expected from the "
        f"{plural(len(found.earlier), 'iteration')} before it (exact {p_equation(p)}, needed {p_value(asked)}). "
        f"Fewer passes: {some(fell, 3)}"
    )
    return RegressionAlert(message, p, asked, fell)


def _since(found: ProfileDelta, now: ProfileResult) -> str:
    """Return what became of the tasks, and how sure that is."""
    if not now.measured:
        return "nothing was measured"
    if found.previous is None:
        return "no earlier iteration to compare with"
    if not found.compared:
        return f"no task can be compared with iteration {found.previous}"
    by = Counter(one.change for one in found.tasks if one.change is not TaskChange.UNCHANGED)
    if not by and found.alert is None:
        return f"since iteration {found.previous}: no task changed"
    moved = [f"{by[change]} {change.value.replace('_', ' ')}" for change in TaskChange if by[change]]
    sure = [one.task_id for one in found.tasks if one.noise is False]
    said = f"more than noise: {some(sure)}" if sure else "all changes are within noise"
    tail = "a regression alert" if found.alert is not None else said
    return f"since iteration {found.previous}: {', '.join(moved) or 'no task changed'}; {tail}"
