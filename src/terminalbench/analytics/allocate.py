"""Which cells get further attempts: those of tasks whose luck still blurs a contrast. Pure.

Attempts only shrink the interval about exactly these tasks, so that is the width aimed at. A task is topped up for all
profiles of the open contrasts alike, and keeps its equal weight: docs/statistics.md says what that is worth.
"""

import heapq
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

import msgspec

from terminalbench.analytics.model import Comparison, Contrast
from terminalbench.records.trial import TaskRef
from terminalbench.text.numbers import plural, points

type CellKey = tuple[str, TaskRef]
FEWEST = 3
"""Every cell gets so many attempts first: adapting to fewer shrinks the estimate and its interval too much."""
_PRIOR = 2.0


class TopUp(msgspec.Struct, frozen=True, kw_only=True):
    """The rule, fixed beforehand: the half-width wanted of every contrast, and how far to go for it.

    `max_attempts` bounds the planned attempts of one task by one profile, `round_trials` the trials of one round.
    """

    half_width: float
    max_attempts: int
    round_trials: int


class MoreAttempts(msgspec.Struct, frozen=True):
    """So many further attempts at one task by one profile."""

    profile: str
    task: TaskRef
    attempts: int


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """The next round, or that there is none. `half_width` is that of the widest contrast now, `expected` after it.

    It is the larger of the interval's own and the likely one: results that happen not to have varied yet may still.
    """

    done: bool
    reason: str
    more: list[MoreAttempts] = []
    half_width: float | None = None
    expected: float | None = None

    @property
    def trials(self) -> int:
        """Return how many trials the round has."""
        return sum(more.attempts for more in self.more)


@dataclass
class _AllocationCell:
    profile: str
    task: TaskRef
    order: tuple[int, int]
    planned: int
    measured: int
    variance: float
    weight: int = 0
    added: int = 0

    @property
    def attempts(self) -> int:
        return self.measured + self.added

    def error_squared(self) -> float:
        return self.variance / max(self.attempts, 1)

    def gain(self) -> float:
        """Return what one more attempt takes off the squared error of the contrasts it is in."""
        return self.weight * self.variance / (max(self.attempts, 1) * (self.attempts + 1))


@dataclass(frozen=True)
class _ContrastAim:
    """One contrast: its cells, the sum of their squared errors and its width now, and whether that is enough."""

    contrast: Contrast
    cells: list[_AllocationCell]
    before: float
    now: float
    reached: bool

    def expected(self) -> float:
        """Its half-width after what was added."""
        squared = sum(cell.error_squared() for cell in self.cells)
        return self.now * sqrt(squared / self.before) if self.before > 0 else 0.0


def allocate(comparison: Comparison, rule: TopUp) -> Allocation:
    """The next round of attempts for the contrasts of `comparison`, or `done` with the reason."""
    cells = _cells(comparison)
    aims = [aim for contrast in comparison.contrasts if (aim := _aim(contrast, cells, comparison, rule)) is not None]
    if not aims:
        return Allocation(done=True, reason="no contrast has a common task")
    widest = max(aim.now for aim in aims)
    open_aims = [aim for aim in aims if not aim.reached]
    if not open_aims:
        return Allocation(
            done=True, reason=f"every half-width is at most {points(rule.half_width, sign=False)}", half_width=widest
        )
    for cell in (cell for aim in open_aims for cell in aim.cells):
        cell.weight += 1
    _spend(open_aims, rule)
    more = [MoreAttempts(c.profile, c.task, c.added) for c in sorted(cells.values(), key=lambda c: c.order) if c.added]
    if not more:
        reason = f"every task that could help has {plural(rule.max_attempts, 'attempt')}"
        return Allocation(done=True, reason=reason, half_width=widest)
    expected = max(aim.expected() for aim in aims)
    names = ", ".join(f"{aim.contrast.new} vs {aim.contrast.old}" for aim in open_aims)
    reason = f"{names}: the half-width is above {points(rule.half_width, sign=False)}"
    return Allocation(done=False, reason=reason, more=more, half_width=widest, expected=expected)


def _cells(comparison: Comparison) -> dict[CellKey, _AllocationCell]:
    """Every cell with its likely variance: its own results, drawn a little towards the task's under all profiles.

    A task that profiles solve unequally is thereby taken to be less settled than one on which they agree.
    """
    totals: dict[TaskRef, list[int]] = {}
    for profile in comparison.profiles:
        for task in profile.tasks:
            counts = totals.setdefault(task.task, [0, 0])
            counts[0] += task.passed
            counts[1] += task.measured
    order = {key: place for place, key in enumerate(totals)}
    cells = {}
    for column, profile in enumerate(comparison.profiles):
        for task in profile.tasks:
            passed, measured = totals[task.task]
            shared = (passed + 0.5) / (measured + 1)
            rate = (task.passed + _PRIOR * shared) / (task.measured + _PRIOR)
            place = (order[task.task], column)
            cells[profile.profile, task.task] = _AllocationCell(
                profile.profile, task.task, place, task.planned, task.measured, rate * (1 - rate)
            )
    return cells


def _aim(
    contrast: Contrast, cells: dict[CellKey, _AllocationCell], comparison: Comparison, rule: TopUp
) -> _ContrastAim | None:
    if contrast.refused:
        return None
    tasks = [task for profile, task in cells if profile == contrast.new and task not in contrast.changed]
    common = [task for task in tasks if (contrast.old, task) in cells]
    if not common:
        return None
    mine = [cells[name, task] for task in common for name in (contrast.new, contrast.old)]
    before = sum(cell.error_squared() for cell in mine)
    measured = contrast.estimate.suite_interval
    now = NormalDist().inv_cdf(1 - comparison.alpha / 2) * sqrt(before) / len(common)
    if measured is not None:
        now = max(now, (measured.high - measured.low) / 2)
    enough = all(cell.measured >= FEWEST or cell.planned >= rule.max_attempts for cell in mine)
    return _ContrastAim(contrast, mine, before, now, enough and now <= rule.half_width)


def _spend(aims: list[_ContrastAim], rule: TopUp) -> None:
    """Give one attempt at a time to the task where it helps most, until the width is expected or the round is full."""
    by_task: dict[int, dict[int, _AllocationCell]] = {}
    for aim in aims:
        for cell in aim.cells:
            by_task.setdefault(cell.order[0], {})[cell.order[1]] = cell
    heap = [entry for place, cells in by_task.items() if (entry := _entry(place, cells, rule)) is not None]
    heapq.heapify(heap)
    left = rule.round_trials
    while heap:
        lacking, _, place = heapq.heappop(heap)
        cells = _fewest(by_task[place], rule)
        enough = not lacking and left < rule.round_trials and all(aim.expected() <= rule.half_width for aim in aims)
        if len(cells) > left or enough:
            return
        for cell in cells:
            cell.added += 1
        left -= len(cells)
        entry = _entry(place, by_task[place], rule)
        if entry is not None:
            heapq.heappush(heap, entry)


def _fewest(cells: dict[int, _AllocationCell], rule: TopUp) -> list[_AllocationCell]:
    """The cells of a task that come next: those that lack attempts, else all that may get more."""
    able = [cell for cell in cells.values() if cell.planned + cell.added < rule.max_attempts]
    return [cell for cell in able if cell.attempts < FEWEST] or able


def _entry(place: int, cells: dict[int, _AllocationCell], rule: TopUp) -> tuple[int, float, int] | None:
    """Return how urgent a task is, the smallest first: attempts it lacks, then the gain of a trial."""
    able = _fewest(cells, rule)
    if not able:
        return None
    lacking = max(0, FEWEST - min(cell.attempts for cell in able))
    return -lacking, -sum(cell.gain() for cell in able) / len(able), place
