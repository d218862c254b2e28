"""The common tasks of two profiles, with the values of each, in one way of counting what was not measured. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from typing import Literal

from terminalbench.analytics import stats
from terminalbench.analytics.model import Metric, Row, TaskDifference
from terminalbench.analytics.summary import ProfileRows, unit_of
from terminalbench.records.trial import Outcome, TaskRef

type Way = Literal["exclude", "fail", "low", "high"]
"""`exclude`: measured trials only; `fail`: all that were planned, those not measured as not passed.

`low` and `high` are the worst and the best that can have become of `new`: of the trials not measured, one side's as
not passed and the other's as passed. Whatever they would have been lies between those two.
"""
WAYS: tuple[Way, Way] = ("exclude", "fail")
BOUNDS: tuple[Way, Way] = ("low", "high")
type Value = Callable[[Row], float | None]
"""What a row contributes: None when it says nothing."""
type Numbers = tuple[float, float, float]
"""The values of one side at one task: how many, their sum, the sum of their squares."""
_FIELDS = {"cost": "cost_usd", "tokens": "tokens", "time": "agent_sec"}


def values_of(metric: Metric, way: Way) -> tuple[Value, Value]:
    """Return what a row of `new` and one of `old` contribute. What a trial would have cost has no bound."""
    if metric != "pass":
        field = _FIELDS[metric]
        found: Value = lambda row: getattr(row, field) if row.measured or way != "exclude" else None  # noqa: E731
        return found, found
    if way == "exclude":
        return _measured, _measured
    lacking = {"fail": (0.0, 0.0), "low": (0.0, 1.0), "high": (1.0, 0.0)}[way]
    return _with(lacking[0]), _with(lacking[1])


def known_values(profile: ProfileRows, metric: Metric, way: Way) -> dict[TaskRef, list[float]]:
    """Return what the trials of each task contribute of a metric that is not the pass rate."""
    return profile.values(_FIELDS[metric], way == "exclude")


def _measured(row: Row) -> float | None:
    return float(row.outcome is Outcome.PASSED) if row.measured else None


def _with(lacking: float) -> Value:
    return lambda row: float(row.outcome is Outcome.PASSED) if row.measured else lacking


@dataclass(frozen=True)
class PairedSample:
    """The common tasks of two profiles in one way of counting, with the values of each."""

    tasks: list[TaskRef]
    new: stats.Cells
    old: stats.Cells
    paired: stats.PairedDifferences
    by_family: bool


def sample(
    new: ProfileRows, old: ProfileRows, tasks: Sequence[TaskRef], metric: Metric, way: Way
) -> PairedSample | None:
    """The sample of `tasks` that have a value under both; None when there is none."""
    if metric == "pass":
        return _passes(new, old, tasks, way)
    known = [known_values(side, metric, way) for side in (new, old)]
    kept: list[TaskRef] = []
    numbers: tuple[list[Numbers], list[Numbers]] = ([], [])
    for task in tasks:
        values = [side[task] for side in known]
        if all(values):
            kept.append(task)
            for side, found in zip(numbers, values, strict=True):
                side.append((len(found), sum(found), sum(v * v for v in found)))
    return joined(kept, *numbers) if kept else None


def _passes(new: ProfileRows, old: ProfileRows, tasks: Sequence[TaskRef], way: Way) -> PairedSample | None:
    """The same for the pass rate, by counting: a profile is counted once for all its contrasts and ways."""
    if way == "exclude":
        tasks = [task for task in tasks if new.counts[task][1] and old.counts[task][1]]
    sides: list[list[Numbers]] = []
    for side, lacking_pass in ((new, way == "high"), (old, way == "low")):
        numbers: list[Numbers] = []
        for task in tasks:
            planned, measured, passed = side.counts[task]
            count = measured if way == "exclude" else planned
            total = float(passed + (planned - measured if lacking_pass else 0))
            numbers.append((count, total, total))
        sides.append(numbers)
    return joined(list(tasks), *sides) if tasks else None


def joined(tasks: list[TaskRef], new: Sequence[Numbers], old: Sequence[Numbers]) -> PairedSample:
    """The sample of `tasks` with the numbers of each side."""
    cells = [stats.Cells(*zip(*side, strict=True)) for side in (new, old)]
    differences = [a - b for a, b in zip(cells[0].mean, cells[1].mean, strict=True)]
    pairs = stats.paired(differences, [unit_of(task) for task in tasks])
    return PairedSample(tasks, cells[0], cells[1], pairs, any(task.family is not None for task in tasks))


@dataclass(frozen=True)
class LogRatios:
    """The logarithm of new over old, of the tasks where both are above zero."""

    tasks: list[TaskRef]
    paired: stats.PairedDifferences


def log_ratios(found: PairedSample) -> LogRatios | None:
    """Return how many times as much `new` takes, task by task; None when no task has a value above zero under both."""
    means = zip(found.tasks, found.new.mean, found.old.mean, strict=True)
    logs = {task: log(new / old) for task, new, old in means if new > 0 and old > 0}
    if not logs:
        return None
    return LogRatios(list(logs), stats.paired(list(logs.values()), [unit_of(task) for task in logs]))


def task_differences(found: PairedSample | None) -> list[TaskDifference]:
    """Each common task with both means."""
    if found is None:
        return []
    means = zip(found.tasks, found.new.mean, found.old.mean, strict=True)
    return [TaskDifference(task, new, old, new - old) for task, new, old in means]
