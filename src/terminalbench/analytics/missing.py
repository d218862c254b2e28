"""Trials that were not measured: how much of the plan they are, how many undo a verdict, how to get them back. Pure."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import msgspec

from terminalbench.analytics.contrast import looks_early, still_to_plan
from terminalbench.analytics.model import Repeat, Row
from terminalbench.analytics.settings import ComparisonSettings
from terminalbench.analytics.summary import Numbers, PairedSample, ProfileRows, joined, known_values
from terminalbench.index.queries import Rerun
from terminalbench.records.trial import Outcome, TaskRef
from terminalbench.text.names import typed


@dataclass(frozen=True)
class MeasuredShare:
    """How much of what a profile was to do was measured, and how much of all that either was to do was compared."""

    measured: float | None
    compared: float | None


def coverage(profile: ProfileRows, tasks: Sequence[TaskRef], apart: int, settings: ComparisonSettings) -> MeasuredShare:
    """Share of a profile's trials that have a measured value of one of `tasks`; and with `apart` more of other tasks.

    Trials of batches still to come are missing, as all are that did not run, unless an early look was declared.
    """
    counts = [profile.counts[task] for task in tasks]
    measured = sum(found for _, found, _ in counts)
    if settings.metric != "pass":
        known = known_values(profile, settings.metric, "exclude")
        measured = sum(len(known[task]) for task in tasks)
    due = sum(count for count, _, _ in counts) + (0 if looks_early(settings) else still_to_plan(profile, settings))
    return MeasuredShare(measured / due if due else None, measured / (due + apart) if due + apart else None)


def trials_apart(side: ProfileRows, other: ProfileRows, common: Collection[TaskRef], changed: Sequence[TaskRef]) -> int:
    """Trials at tasks that cannot be compared: what `changed`, and what only one of the two was to attempt.

    `common` are the tasks that both were to attempt. What the other alone was to attempt, this one has not.
    """
    alone = sum(len(rows) for one in (side, other) for task, rows in one.tasks.items() if task not in common)
    return alone + sum(len(side.tasks[task]) for task in changed)


def begun(new: ProfileRows, old: ProfileRows, tasks: Sequence[TaskRef]) -> list[TaskRef]:
    """The tasks that one of the two has begun. What neither has begun lowers coverage, and favours neither."""
    return [task for task in tasks if any(r.outcome is not Outcome.NOT_RUN for p in (new, old) for r in p.tasks[task])]


def first_tries_only(profile: ProfileRows, *, at_different_rates: bool) -> ProfileRows:
    """The profile with trials that were run again, after they broke while their agent worked, as not measured.

    A crash may be the agent's own doing, so every pass that came after one is in doubt: it can have been a fail. What
    an outage may have broken counts only where it broke one of two profiles more often.
    """
    if not any(row.redrawn if at_different_rates else row.crashed for row in profile.rows()):
        return profile

    def in_doubt(row: Row) -> bool:
        again = row.redrawn and row.measured and at_different_rates
        return bool(again or (row.crashed and row.outcome is Outcome.PASSED))

    broken = Outcome.ERRORED
    tasks = {
        task: [msgspec.structs.replace(row, outcome=broken) if in_doubt(row) else row for row in rows]
        for task, rows in profile.tasks.items()
    }
    return ProfileRows(profile.profile, tasks)


def lost_trials(profile: ProfileRows, tasks: Sequence[TaskRef]) -> int:
    """Return how many trials of `tasks` were not measured."""
    return sum(planned - measured for planned, measured, _ in map(profile.counts.__getitem__, tasks))


@dataclass(frozen=True)
class TippingPoint:
    """How many missing trials, gone against a verdict, undo it (None: not even all); `exact`: no fewer do."""

    count: int | None = None
    exact: bool = True


MOST_TRIED = 1500
"""So many ways to turn missing trials are tried for the fewest that undo a verdict,"""
MOST_LOOKED_AT = 60_000
"""and fewer where there are many tasks: all of them together have so many."""


def undone_by(
    low: PairedSample, high: PairedSample, holds: Callable[[PairedSample], bool], *, upward: bool
) -> TippingPoint:
    """The fewest missing trials that, gone against a verdict, undo it.

    For a verdict `upward` (new has more) every one of them counts for it at first (`high`), and some are turned;
    downward, the reverse. All ways to turn one, two, ... of them are tried: tasks with the same numbers are alike.
    Beyond `MOST_TRIED` it is the fewest of those that are turned where they damage most.
    """
    start, end = (high, low) if upward else (low, high)
    steps = _steps(start, end, upward=upward)
    bound = _fewest(lambda count: holds(_turned(start, steps[:count])), len(steps))
    open_ways, tried, most = [Counter[Step]()], 0, min(MOST_TRIED, MOST_LOOKED_AT // len(start.tasks))
    for count in range(len(steps) if bound is None else bound):
        for way in open_ways:
            tried += 1
            if not holds(_turned(start, list(way.elements()))):
                return TippingPoint(count)
        open_ways = _one_more(start, open_ways, Counter(steps), most - tried) if tried < most else []
        if not open_ways or len(open_ways) > most - tried:
            return TippingPoint(bound, exact=bound is None)
    return TippingPoint(bound)


def _one_more(
    start: PairedSample, ways: Sequence[Counter["Step"]], missing: Mapping["Step", int], most: int
) -> list[Counter["Step"]]:
    """The ways to turn one trial more, each once: which of several like tasks it is of makes no difference."""
    found: dict[tuple, Counter[Step]] = {}
    units = Counter(start.paired.units)
    own = [
        (start.new.count[t], start.new.total[t], start.old.count[t], start.old.total[t], _unit(start, t, units))
        for t in range(len(start.tasks))
    ]
    for way in ways:
        for step, count in missing.items():
            if way[step] < count:
                more = way + Counter([step])
                turned: dict[int, list] = {}
                for (task, side, change), times in sorted(more.items()):
                    turned.setdefault(task, []).append((side, change, times))
                found.setdefault(tuple(sorted((own[task], tuple(sides)) for task, sides in turned.items())), more)
        if len(found) > most:
            break
    return list(found.values())


def _unit(start: PairedSample, task: int, units: Mapping[int, int]) -> int:
    """-1 where the task is its own unit: then it is like any other with its numbers."""
    unit = start.paired.units[task]
    return unit if units[unit] > 1 else -1


MOST_STAGES_TRIED = 64
"""So many where each is judged by all its looks, which takes longer."""


def undone_in_stages(
    sides: tuple[ProfileRows, ProfileRows],
    low: PairedSample,
    high: PairedSample,
    holds: Callable[[ProfileRows, ProfileRows], bool],
    *,
    upward: bool,
) -> TippingPoint:
    """Return the same as `undone_by` where it matters when a trial was: each missing trial is one of its own.

    Of one task and side the earlier ones are turned first, until all sets of fewer trials are tried.
    """
    start, end = (high, low) if upward else (low, high)
    steps = _steps(start, end, upward=upward)
    lost = {
        (task, side): [place for place, row in enumerate(sides[side].tasks[start.tasks[task]]) if not row.measured]
        for task, side, _ in steps
    }
    seen: Counter[tuple[int, int]] = Counter()
    trials: list[tuple[int, int, int]] = []
    for task, side, _ in steps:
        trials.append((task, side, lost[task, side][seen[task, side]]))
        seen[task, side] += 1

    def held(turned: Sequence[tuple[int, int, int]]) -> bool:
        against = {(start.tasks[task], side, place) for task, side, place in turned}
        new, old = (
            _decided(profile, side, against, passed=upward is (side == 0)) for side, profile in enumerate(sides)
        )
        return holds(new, old)

    bound, tried = _fewest(lambda count: held(trials[:count]), len(trials)), 0
    for count in range(bound or 0):
        for some_trials in combinations(trials, count):
            tried += 1
            if tried > MOST_STAGES_TRIED:
                return TippingPoint(bound, exact=False)
            if not held(some_trials):
                return TippingPoint(count)
    return TippingPoint(bound)


def _fewest(holds: Callable[[int], bool], most: int) -> int | None:
    """The fewest with which it does not hold; None when it does with all."""
    if holds(most):
        return None
    least = 0
    while least < most:
        middle = (least + most) // 2
        if holds(middle):
            least = middle + 1
        else:
            most = middle
    return least


def _decided(
    profile: ProfileRows, side: int, against: Collection[tuple[TaskRef, int, int]], *, passed: bool
) -> ProfileRows:
    """The profile with its missing trials as passed or not, but those `against` (task, side, place) the other way."""
    outcomes = (Outcome.PASSED, Outcome.FAILED) if passed else (Outcome.FAILED, Outcome.PASSED)
    tasks = {
        task: [
            row if row.measured else msgspec.structs.replace(row, outcome=outcomes[(task, side, place) in against])
            for place, row in enumerate(rows)
        ]
        for task, rows in profile.tasks.items()
    }
    return ProfileRows(profile.profile, tasks)


type Step = tuple[int, int, float]
"""A task, the side (0 new, 1 old), and what is added to its passes."""


def _steps(start: PairedSample, end: PairedSample, *, upward: bool) -> list[Step]:
    """One for each missing trial, in the order in which they are turned."""
    found: list[Step] = []
    sign = 1 if upward else -1
    differences = start.paired.differences
    for task in sorted(range(len(differences)), key=lambda place: sign * differences[place]):
        for side, (first, last) in enumerate(((start.new, end.new), (start.old, end.old))):
            change = round(last.total[task] - first.total[task])
            found += [(task, side, float(change > 0) - float(change < 0))] * abs(change)
    return found


def _turned(start: PairedSample, steps: Sequence[Step]) -> PairedSample:
    totals = [list(side.total) for side in (start.new, start.old)]
    for task, side, change in steps:
        totals[side][task] += change
    numbers: list[list[Numbers]] = [
        [(count, passed, passed) for count, passed in zip(cells.count, found, strict=True)]
        for cells, found in zip((start.new, start.old), totals, strict=True)
    ]
    return joined(start.tasks, numbers[0], numbers[1])


def repeats(rows: Sequence[Row], settings: ComparisonSettings) -> list[Repeat]:
    """A command for each batch that runs again what was not measured of the compared profiles, and how much that is."""
    compared = {name for pair in settings.contrasts for name in pair}
    open_rows = [row for row in rows if row.rerun is not None and not row.spared]
    rows = [row for row in open_rows if row.profile in compared or not compared]
    places = settings.places
    found = []
    for batch, held in dict.fromkeys((row.batch, row.held) for row in rows):
        ways = [row.rerun for row in rows if (row.batch, row.held) == (batch, held)]
        place = batch if places is None else places.get(batch)
        if place is not None and held is not None:  # only the file has a budget to raise
            found.append(Repeat(batch, len(ways), "tbench resume FILE.toml", f"{held}, then"))
        elif place is not None:
            retry = " --retry-errors" if Rerun.RETRY in ways else ""
            found.append(Repeat(batch, len(ways), f"tbench resume {typed(place)}{retry}"))
    return found
