"""Two profiles on their common tasks: the estimate both ways, the looks, and what both ways allow to say. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp, fsum
from typing import Any, Literal

import msgspec

from terminalbench.analytics import power, sign_flip, stats
from terminalbench.analytics.model import Estimate, Interval, LookMethod, Metric, Row, SequentialPlan, Verdict
from terminalbench.analytics.settings import ComparisonSettings, RecordedExtent
from terminalbench.analytics.summary import PairedSample, ProfileRows, Way, log_ratios, sample, unit_of
from terminalbench.records.trial import Outcome, TaskRef
from terminalbench.text.numbers import MORE_IS_BETTER

PENDING = (Outcome.NOT_RUN, Outcome.CANCELLED)
BY_STAGES = ("sign-flips", "growth")
MOST_ROUNDS = 20


def estimate(found: PairedSample | None, settings: ComparisonSettings) -> Estimate:
    """The mean difference over tasks and its p; `with_intervals` adds what depends on the other contrasts."""
    if found is None:
        return Estimate(units=0, trials=0)
    pairs = found.paired
    values, most = unit_values(found, settings)
    p = sign_flip.decision_p(values)
    if settings.strict and settings.metric == "pass":
        p = max(p, sign_flip.strict_p(values, most))
    better = 1 if settings.metric in MORE_IS_BETTER else -1
    reach = (-1.0, 1.0) if settings.metric == "pass" else None
    return Estimate(
        units=pairs.unit_count,
        tasks=len(found.tasks),
        trials=round(sum(found.new.count) + sum(found.old.count)),
        new=fsum(found.new.mean) / len(found.tasks),
        old=fsum(found.old.mean) / len(found.tasks),
        difference=pairs.mean,
        error=pairs.standard_error(),
        interval=stats.mean_interval(pairs, settings.alpha, reach),
        suite_interval=stats.suite_interval(found.new, found.old, settings.alpha, reach),
        p=p,
        **_ratio(found, settings.metric, settings.alpha),
        wins=sum(better * value > 0 for value in values),
        losses=sum(better * value < 0 for value in values),
        ties=sum(value == 0 for value in values),
    )


def _ratio(found: PairedSample, metric: Metric, alpha: float) -> dict[str, Any]:
    """The ratio of new to old with its interval, for what is used up; a pass rate and a reward have none."""
    logs = log_ratios(found) if metric not in MORE_IS_BETTER else None
    if logs is None:
        return {}
    span = stats.mean_interval(logs.paired, alpha)
    ends = msgspec.structs.replace(span, low=exp(span.low), high=exp(span.high)) if span is not None else None
    p = sign_flip.decision_p(sign_flip.on_grid(logs.paired.unit_sums()))
    return {"ratio": exp(logs.paired.mean), "ratio_interval": ends, "ratio_tasks": len(logs.tasks), "ratio_p": p}


def unit_values(found: PairedSample, settings: ComparisonSettings) -> tuple[list[int], int]:
    """Each unit's sum of differences as a whole number, exact for the pass rate; and the most it can be there."""
    if settings.metric != "pass":
        return sign_flip.on_grid(found.paired.unit_sums()), 0
    counts = [[(round(t), round(n)) for t, n in zip(c.total, c.count, strict=True)] for c in (found.new, found.old)]
    values, step = sign_flip.lattice(*counts)
    return stats.by_unit(values, found.paired.units), step * max(found.paired.unit_sizes)


def with_interval(
    way: "CountedWay", found: PairedSample | None, looks: "LookPlan", settings: ComparisonSettings, steps: int
) -> Estimate:
    """The estimate with its interval at the level at which p was judged: Holm's step, or that of the look.

    Where p does not exclude zero, neither does the interval: Student's is not exact with few tasks.
    """
    interval = way.estimate.interval
    if found is None or interval is None:
        return way.estimate
    by_look = looks.method == "obrien-fleming" and looks.level > 0
    alpha = looks.level if by_look else settings.alpha / steps
    reach = (-1.0, 1.0) if settings.metric == "pass" else None
    interval = stats.mean_interval(found.paired, alpha, reach) or interval
    if not way.decides(looks) and not interval.low <= 0 <= interval.high:
        interval = msgspec.structs.replace(
            interval,
            low=min(interval.low, 0.0),
            high=max(interval.high, 0.0),
            method=f"{interval.method}, extended to zero because p does not exclude zero",
        )
    suite = stats.suite_interval(found.new, found.old, alpha, reach)
    ratio = _ratio_at(found, settings.metric, alpha, 1 if by_look else steps)
    return msgspec.structs.replace(way.estimate, interval=interval, suite_interval=suite, **ratio)


def _ratio_at(found: PairedSample, metric: Metric, alpha: float, steps: int) -> dict[str, Any]:
    """The ratio with its p after Holm's step; the interval reaches one where p does not exclude it."""
    ratio = _ratio(found, metric, alpha)
    if not ratio:
        return ratio
    span, p = ratio["ratio_interval"], ratio["ratio_p"]
    if span is not None and p > alpha and not span.low <= 1 <= span.high:
        method = f"{span.method}, extended to one because p does not exclude one"
        span = msgspec.structs.replace(span, low=min(span.low, 1.0), high=max(span.high, 1.0), method=method)
    return {**ratio, "ratio_interval": span, "ratio_p": min(1.0, p * steps)}


def still_to_plan(profile: ProfileRows, settings: ComparisonSettings) -> int:
    """Trials that were declared over all batches and are in none of these."""
    return max(0, (settings.planned_trials or 0) - len(profile.rows()))


type Stage = Callable[[ProfileRows], ProfileRows]
"""What of a profile's rows was there at a look."""


@dataclass(frozen=True)
class LookPlan:
    """What the looks allow now: by p up to `level`, or by signs flipped over all `stages` at once.

    `last` says that there is no further look: an interval may be judged only once. `budgets` is how much of the error
    may be used up by the end of each stage; under `strict` p must reach `strict_level` as well. `growth`: looks that
    nothing declared, because the trials became more.
    """

    method: LookMethod | Literal["plain"]
    level: float
    look: int | None = None
    looks: int | None = None
    last: bool = True
    stages: tuple[Stage, ...] = ()
    budgets: tuple[float, ...] = ()
    strict_level: float | None = None


def looks_early(settings: ComparisonSettings) -> bool:
    """Return whether the plan lets one decide before the end: by declared looks, or the pass rate at any time."""
    return settings.looks != 1 and (settings.looks != "any" or settings.metric == "pass")


def looks_now(new: ProfileRows, old: ProfileRows, settings: ComparisonSettings, family: int) -> LookPlan:
    """Return where the plan of looks stands, for one of `family` contrasts."""
    alpha = settings.alpha / family
    if not looks_early(settings):
        stages = _nights(new, old, settings)
        if len(stages) < 2:
            return LookPlan("plain", settings.alpha)
        count = len(stages)
        strict = alpha / count if settings.strict else None
        return LookPlan("growth", alpha, count, count, True, stages, (alpha,) * count, strict)
    tasks = [task for task in new.tasks if task in old.tasks]
    if settings.looks == "any":
        return _rounds(new, old, tasks, settings, alpha)
    rows = [row for side in (new, old) for task in tasks for row in side.tasks[task] if not _left_out(row)]
    planned = len(rows) + still_to_plan(new, settings) + still_to_plan(old, settings)
    ended = sum(row.outcome not in PENDING for row in rows)
    planned_looks = settings.looks
    look = stats.look_reached(ended, planned, planned_looks)
    level = stats.nominal_level(look, planned_looks, alpha) if look else 0.0
    return LookPlan("obrien-fleming", level, look, planned_looks, last=look == planned_looks)


def _rounds(
    new: ProfileRows, old: ProfileRows, tasks: Sequence[TaskRef], settings: ComparisonSettings, alpha: float
) -> LookPlan:
    """Up to 20 equal parts of the planned pairs of attempts, in the order of the plan; a part counts once it is whole.

    Little of the error may be used up at first: it grows with the square of the part.
    """
    pairs = [
        (task, attempt)
        for attempt in range(max((len(side.tasks[task]) for side in (new, old) for task in tasks), default=0))
        for task in tasks
        if attempt < min(len(new.tasks[task]), len(old.tasks[task]))
    ]
    running = (
        place
        for place, (task, attempt) in enumerate(pairs)
        for row in (new.tasks[task][attempt], old.tasks[task][attempt])
        if row.outcome in PENDING and not _left_out(row)
    )
    whole = next(running, len(pairs))
    planned = len(pairs) + (still_to_plan(new, settings) + still_to_plan(old, settings)) // 2
    looks = max(1, min(MOST_ROUNDS, planned))
    ends = [-(-planned * look // looks) for look in range(1, looks + 1)]
    reached = [end for end in ends if end <= whole]
    stages = tuple(_first(pairs[:end]) for end in reached)
    budgets = tuple(alpha * (look / looks) ** 2 for look in range(1, len(reached) + 1))
    level = budgets[-1] if budgets else 0.0
    last = len(reached) == looks
    strict = (alpha if last else 0.0) if settings.strict else None
    return LookPlan("sign-flips", level, len(reached), looks, last, stages, budgets, strict)


def _first(pairs: Sequence[tuple[TaskRef, int]]) -> Stage:
    counts = {task: attempt + 1 for task, attempt in pairs}
    return lambda profile: ProfileRows(
        profile.profile, {task: rows[: counts[task]] for task, rows in profile.tasks.items() if task in counts}
    )


def _nights(new: ProfileRows, old: ProfileRows, settings: ComparisonSettings) -> tuple[Stage, ...]:
    """The stages of `settings.growth` in which both profiles had more trials than in the one before."""
    stages, seen = [], (0, 0)
    for night in settings.growth:
        stage = _until([RecordedExtent(*one) for one in night])
        count = sum(map(len, stage(new).tasks.values())), sum(map(len, stage(old).tasks.values()))
        if count != seen and all(count):
            stages.append(stage)
            seen = count
    return tuple(stages)


def _until(batches: Sequence[RecordedExtent]) -> Stage:
    """The rows of these batches that were there then."""
    by_batch = {one.batch: one for one in batches}

    def there(row: Row) -> bool:
        then = by_batch.get(row.batch)
        if then is None or row.task.name in then.without:
            return False
        return then.attempts is None or row.attempt <= then.attempts

    return lambda profile: profile.only(there)


def crossing(
    new: ProfileRows, old: ProfileRows, tasks: Sequence[TaskRef], way: Way, looks: LookPlan, metric: Metric
) -> sign_flip.Crossing | None:
    """Return what the stages of the looks say in one way of counting; None where p decides, or nothing is there yet."""
    if not looks.stages:
        return None
    units = {unit: place for place, unit in enumerate(dict.fromkeys(unit_of(task) for task in tasks))}
    values = []
    for stage in looks.stages:
        ours, theirs = stage(new), stage(old)
        there = [task for task in tasks if task in ours.tasks and task in theirs.tasks]
        found = sample(ours, theirs, there, metric, way)
        sums = [0.0] * len(units)
        for task, difference in zip(found.tasks, found.paired.differences, strict=True) if found is not None else ():
            sums[units[unit_of(task)]] += difference
        values.append(sums)
    return sign_flip.sequential_flips(values, looks.budgets)


def _left_out(row: Row) -> bool:
    """Return whether the plan leaves a trial out for a reason: it is not to come. One that was spared waits, for
    ever."""
    return row.outcome is Outcome.NOT_RUN and row.reason is not None and not row.spared


def ended_only(profile: ProfileRows) -> ProfileRows:
    """The profile without trials that are still to come: at a declared look they are not missing.

    What was cut off, and what the plan leaves out for a reason, is missing at every look.
    """
    return profile.only(lambda row: row.outcome is not Outcome.NOT_RUN or _left_out(row))


@dataclass(frozen=True)
class CountedWay:
    """One way of counting, ready to be judged: the estimate, its adjusted p, what the looks over whole tasks say."""

    estimate: Estimate
    p_adjusted: float | None
    narrow: Interval | None = None
    fit: stats.MarginFit | None = None
    crossing: sign_flip.Crossing | None = None

    def decides(self, looks: LookPlan) -> bool:
        """Return whether a difference is shown."""
        if looks.method in BY_STAGES:
            if looks.strict_level is not None and (self.estimate.p is None or self.estimate.p > looks.strict_level):
                return False
            return self.crossing is not None and self.crossing.direction == self.direction() != 0
        p = self.estimate.p if looks.method == "obrien-fleming" else self.p_adjusted
        return p is not None and p <= looks.level

    @property
    def inside(self) -> bool:
        """Return whether the interval, widened for the family of contrasts, lies within the margin."""
        return self.fit is not None and all(self.fit)

    def direction(self) -> int:
        """+1 where new has more of the metric, -1 where it has less."""
        found = self.estimate.difference or 0.0
        return (found > 0) - (found < 0)


def judge(ways: Sequence[CountedWay], looks: LookPlan, settings: ComparisonSettings) -> Verdict:
    """The verdict that holds in every one of `ways`."""
    if settings.metric == "pass" and looks.last and all(way.inside for way in ways):
        return "equivalent"
    directions = {way.direction() for way in ways}
    if len(directions) == 1 and directions != {0} and all(way.decides(looks) for way in ways):
        good = 1 if settings.metric in MORE_IS_BETTER else -1
        return "better" if directions == {good} else "worse"
    return "inconclusive"


def chance_to_decide(looks: LookPlan, way: CountedWay, settings: ComparisonSettings, family: int) -> float | None:
    """Return how likely the last of looks at any time shows a difference or equivalence, if all goes on as so far.

    None where one of them has decided, where none is to come, or of units that are too few to show any difference.
    """
    crossed, level = way.crossing, settings.alpha / family
    few = way.estimate.units < power.fewest_units(level)
    if looks.method != "sign-flips" or not looks.look or looks.last or crossed is None or few or way.decides(looks):
        return None
    share = looks.look / (looks.looks or 1)
    found = power.chance_to_differ(crossed.z, share, level)
    if settings.margin is not None and way.estimate.error is not None:
        gap, error = way.estimate.difference or 0.0, way.estimate.error
        found += power.chance_to_fit(gap, error, share, level, settings.margin, way.estimate.units)
    return min(1.0, found)


def sequential_record(
    looks: LookPlan, way: CountedWay, fewest: int, chance: float | None = None, spared: int = 0
) -> SequentialPlan | None:
    """Return what the plan of looks says, for the report; fewer than `fewest` units decide at none of them."""
    if looks.method == "plain":
        return None
    crossed = way.crossing
    if looks.last and looks.method in BY_STAGES and crossed is not None:
        fewest = max(fewest, power.fewest_units(crossed.level)) if crossed.level > 0 else way.estimate.units + 1
    return SequentialPlan(
        method=looks.method,
        decided=way.decides(looks),
        level=crossed.level if crossed is not None else looks.level,
        look=looks.look,
        looks=looks.looks,
        decided_at=crossed.look if crossed is not None else None,
        never=0 < way.estimate.units < fewest and not way.decides(looks),
        chance=chance,
        spared=spared,
    )


@dataclass(frozen=True)
class Size:
    """What a comparison of this size can show, and how many trials the declared effect would take."""

    smallest: float | None = None
    trials: int | None = None
    in_third: float | None = None


def size_of(
    found: PairedSample | None,
    counted: CountedWay,
    settings: ComparisonSettings,
    family: int,
    sequential: SequentialPlan | None,
) -> Size:
    """The smallest detectable difference and the trials needed, by the test that decides: at Holm's strictest step for
    `family` contrasts, at the last of the declared looks, or at what undeclared ones have left. No gap is named that
    cannot exist over a profile that passes so often."""
    way = counted.estimate
    if found is None or way.difference is None:
        return Size()
    level = stats.last_level(settings.looks, settings.alpha / family)
    if sequential is not None and sequential.method == "growth":
        level = min(level, sequential.level or 0.0)
    if level <= 0 or (sequential is not None and sequential.never):
        return Size()
    if settings.metric != "pass":
        moment = (way.error or 0.0) ** 2 * way.units + way.difference**2
        return Size(power.smallest_shift(moment, way.units, level) if way.error else None)
    cells: list[list[power.TaskPair]] = [[] for _ in range(way.units)]
    counts = zip(found.new.total, found.new.count, found.old.total, found.old.count, strict=True)
    for unit, numbers in zip(found.paired.units, counts, strict=True):
        cells[unit].append(power.TaskPair(*map(round, numbers)))
    units, rule = power.observed(cells), power.DecisionRule(level, settings.strict)
    needed = power.units_needed(units, settings.effect, rule) if settings.effect is not None else None
    trials = -(-needed * way.trials // way.units) if needed is not None else None
    most = max(way.old or 0.0, 1 - (way.old or 0.0))
    gaps = [power.smallest_gap(one, way.units, rule) for one in (units, replace(units, gaining=1 / 3))]
    smallest, in_third = (gap if gap is not None and gap <= most else None for gap in gaps)
    return Size(smallest, trials, in_third)
