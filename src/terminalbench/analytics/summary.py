"""Profiles by themselves: counts, rates, pass@k, money, the Pareto front; and in pairs, on their common tasks. Pure."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum, log
from typing import Literal

import msgspec

from terminalbench.analytics import stats
from terminalbench.analytics.model import Interval, Metric, ProfileSummary, Row, TaskDifference, TaskSummary
from terminalbench.analytics.settings import ComparisonSettings, is_oracle
from terminalbench.index.totals import wilson
from terminalbench.records.counts import Spend, pass_rates
from terminalbench.records.trial import Outcome, TaskRef
from terminalbench.records.values import known_total
from terminalbench.text.numbers import plural, some

_SHOWN_K = (1, 2, 3, 4, 5, 8, 10, 20, 50, 100)


@dataclass(frozen=True)
class ProfileRows:
    """The rows of one profile, by task, in the order of the plan."""

    profile: str
    tasks: Mapping[TaskRef, list[Row]]

    @cached_property
    def counts(self) -> dict[TaskRef, tuple[int, int, int]]:
        """Return for each task how many trials were planned, measured and passed."""
        found = {}
        for task, rows in self.tasks.items():
            outcomes = [row.outcome for row in rows]
            passed = outcomes.count(Outcome.PASSED)
            found[task] = (len(outcomes), passed + outcomes.count(Outcome.FAILED), passed)
        return found

    def values(self, field: str, measured_only: bool) -> dict[TaskRef, list[float]]:
        """Return for each task the known values of a field, of all trials or of those measured."""
        known = self._values.get((field, measured_only))
        if known is None:
            known = self._values[field, measured_only] = {
                task: [
                    value
                    for row in rows
                    if (row.measured or not measured_only) and (value := getattr(row, field)) is not None
                ]
                for task, rows in self.tasks.items()
            }
        return known

    @cached_property
    def _values(self) -> dict[tuple[str, bool], dict[TaskRef, list[float]]]:
        return {}

    @cached_property
    def _rows(self) -> list[Row]:
        return [row for rows in self.tasks.values() for row in rows]

    def rows(self) -> list[Row]:
        """All of them."""
        return self._rows

    def only(self, keep: Callable[[Row], bool]) -> "ProfileRows":
        """Return the profile with some of its rows, without tasks of which none is left."""
        tasks = {task: [row for row in rows if keep(row)] for task, rows in self.tasks.items()}
        return ProfileRows(self.profile, {task: rows for task, rows in tasks.items() if rows})


def by_profile(rows: Sequence[Row]) -> dict[str, ProfileRows]:
    """The rows by profile and task, each in the order they come."""
    grouped: dict[str, dict[TaskRef, list[Row]]] = {}
    for row in rows:
        grouped.setdefault(row.profile, {}).setdefault(row.task, []).append(row)
    return {profile: ProfileRows(profile, tasks) for profile, tasks in grouped.items()}


def unit_of(task: TaskRef) -> tuple[str, str]:
    """Return what a task is counted with: its family, else itself."""
    return ("family", task.family) if task.family is not None else (task.dataset, task.id)


@dataclass(frozen=True)
class ParetoFront:
    """The profiles on the Pareto front; `note` says what it is over, and who has no place in it."""

    profiles: list[str]
    note: str | None = None


def summarise(
    profiles: Mapping[str, ProfileRows], settings: ComparisonSettings, front: ParetoFront
) -> list[ProfileSummary]:
    """Each profile's summary, with the Pareto front marked."""
    found = [_summary(profile, settings) for profile in profiles.values()]
    return [msgspec.structs.replace(s, on_pareto_front=True) if s.profile in front.profiles else s for s in found]


def _summary(profile: ProfileRows, settings: ComparisonSettings) -> ProfileSummary:
    rows = profile.rows()
    tasks = [_task(task, found, profile.counts[task], settings) for task, found in profile.tasks.items()]
    passed = sum(task.passed for task in tasks)
    measured = sum(task.measured for task in tasks)
    rated = [(task.rate, unit_of(task.task)) for task in tasks if task.rate is not None]
    sample = stats.paired(*zip(*rated, strict=True)) if rated else None
    seconds = [row.agent_sec for row in rows if row.agent_sec is not None]
    rates = pass_rates(rows)
    rewards = [sum(found) / len(found) for found in known_values(profile, "reward", "exclude").values() if found]
    at, hat = _pass_k(tasks, settings)
    each, each_interval = _cost_per_success(profile, settings)
    spent = Spend.total(row.spent for row in rows)
    return ProfileSummary(
        profile=profile.profile,
        planned=len(rows),
        measured=measured,
        passed=passed,
        coverage=measured / len(rows),
        tasks=tasks,
        outcomes=dict(Counter(row.state for row in rows)),
        errors=dict(Counter(str(row.error_class) for row in rows if row.error_class and not row.measured)),
        rate=rates.rate,
        rate_all=rates.rate_all,
        interval=rate_interval(sample, measured, settings.alpha) if sample is not None else None,
        pass_at=at,
        pass_hat=hat,
        cost_usd=spent.cost_usd,
        cost_unknown_trials=spent.cost_unknown,
        superseded_trials=sum(row.superseded for row in rows),
        tokens=spent.tokens,
        tokens_unknown_trials=spent.tokens_unknown,
        cost_per_success=each,
        cost_per_success_interval=each_interval,
        mean_agent_sec=sum(seconds) / len(seconds) if seconds else None,
        mean_reward=sum(rewards) / len(rewards) if rewards else None,
        simulated=any(row.simulated for row in rows),
        no_model=all(row.no_model for row in rows),
        oracle=is_oracle(settings.profiles, profile.profile),
    )


def _task(ref: TaskRef, rows: list[Row], counts: tuple[int, int, int], settings: ComparisonSettings) -> TaskSummary:
    planned, measured, passed = counts
    return TaskSummary(
        task=ref,
        planned=planned,
        measured=measured,
        passed=passed,
        rate=passed / measured if measured else None,
        interval=stats.jeffreys(passed, measured, settings.alpha) if measured else None,
        outcomes=dict(Counter(row.state for row in rows)),
        flaky=0 < passed < measured,
        trials=[row.trial for row in rows if row.trial is not None],
    )


def rate_interval(sample: stats.PairedDifferences, measured: int, alpha: float) -> Interval:
    """Wilson's interval of a pass rate over `measured` trials, with the count that clustering by task leaves."""
    count = stats.effective_count(sample, measured)
    low, high = wilson(sample.mean, count, alpha)
    return Interval(low, high, 1 - alpha, f"Wilson, effective n = {count:.3g}", stats.TASKS_LIKE_THESE)


def _pass_k(tasks: Sequence[TaskSummary], settings: ComparisonSettings) -> tuple[dict[int, float], dict[int, float]]:
    """pass@k and pass^k for every k that all planned tasks have attempts for: dropping tasks would change the question.

    Where nothing was measured of a task there is none, not even for one attempt.
    """
    counts = [(t.planned if settings.rule == "fail" else t.measured, t.passed) for t in tasks]
    most = min((count for count, _ in counts), default=0)
    wanted = sorted({k for k in (*_SHOWN_K, most, settings.k or 1) if 1 <= k <= most})
    at = {k: sum(stats.pass_at_k(n, c, k) for n, c in counts) / len(counts) for k in wanted}
    hat = {k: sum(stats.pass_hat_k(n, c, k) for n, c in counts) / len(counts) for k in wanted}
    return at, hat


def _cost_per_success(profile: ProfileRows, settings: ComparisonSettings) -> tuple[float | None, Interval | None]:
    """Total cost over total successes, failures and broken tries included; unknown as soon as one cost is."""
    rows = profile.rows()
    successes = sum(row.outcome is Outcome.PASSED for row in rows)
    spent = known_total(row.spent.cost_usd for row in rows)
    if not successes or spent is None or any(row.spent.cost_unknown for row in rows):
        return None, None
    units: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        sums = units.setdefault(unit_of(row.task), [0.0, 0.0])
        sums[0] += row.spent.cost_usd or 0.0
        sums[1] += row.outcome is Outcome.PASSED
    costs, passes = zip(*sorted(units.values()), strict=True)
    return spent / successes, stats.ratio_interval(costs, passes, settings.alpha)


def pareto_front(profiles: Mapping[str, ProfileRows]) -> ParetoFront:
    """The profiles that no other beats at once in passes and in cost, on the tasks that all of them were to attempt.

    Both are counted over all planned trials: crashes that are left out of the pass rate neither raise a profile nor
    make it cheap. A profile that calls no model, or of which nothing was measured or a cost is unknown, has no place in
    it.
    """
    free = [name for name, profile in profiles.items() if all(row.no_model for row in profile.rows())]
    priced = {name: profile for name, profile in profiles.items() if name not in free}
    every = dict.fromkeys(task for profile in priced.values() for task in profile.tasks)
    common = [task for task in every if all(task in profile.tasks for profile in priced.values())]
    placed: list[tuple[float, float, str]] = []
    unmeasured, unknown = [], []
    for name, profile in priced.items():
        rows = [row for task in common for row in profile.tasks[task]]
        spent = Spend.total(row.spent for row in rows)
        if not any(row.measured for row in rows):
            unmeasured.append(name)
        elif spent.cost_usd is None or spent.cost_unknown:
            unknown.append(name)
        else:
            rates = [passed / planned for planned, _, passed in map(profile.counts.__getitem__, common)]
            placed.append((fsum(rates) / len(rates), spent.cost_usd / len(rows), name))
    if len(placed) < 2:
        return ParetoFront([])
    front = [
        name
        for rate, cost, name in placed
        if not any(r >= rate and c <= cost and (r > rate or c < cost) for r, c, _ in placed)
    ]
    left_out = {"no model is called": free, "nothing was measured": unmeasured, "a cost is unknown": unknown}
    parts = [f"over the {plural(len(common), 'task')} of {len(every)} that all of them have"]
    parts = parts if len(common) < len(every) else []
    parts += [f"without {some(names)}: {why}" for why, names in left_out.items() if names]
    return ParetoFront(front, f"Pareto front {'; '.join(parts)}" if parts else None)


type Way = Literal["exclude", "fail", "low", "high"]
"""`exclude`: measured trials only; `fail`: all that were planned, those not measured as not passed.

`low` and `high` are the worst and the best that can have become of `new`: of the trials not measured, one side's as
not passed and the other's as passed. Whatever they would have been lies between those two.
"""
WAYS: tuple[Way, Way] = ("exclude", "fail")
BOUNDS: tuple[Way, Way] = ("low", "high")
type Numbers = tuple[float, float, float]
"""The values of one side at one task: how many, their sum, the sum of their squares."""
_FIELDS = {"reward": "reward", "cost": "cost_usd", "tokens": "tokens", "time": "agent_sec"}


def has_value(row: Row, metric: Metric, way: Way) -> bool:
    """Return whether a row contributes anything. What a trial would have cost has no bound."""
    return (row.measured or way != "exclude") and (metric == "pass" or getattr(row, _FIELDS[metric]) is not None)


def known_values(profile: ProfileRows, metric: Metric, way: Way) -> dict[TaskRef, list[float]]:
    """Return what the trials of each task contribute of a metric that is not the pass rate."""
    return profile.values(_FIELDS[metric], way == "exclude")


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
