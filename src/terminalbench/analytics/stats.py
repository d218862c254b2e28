"""The formulas of a comparison: pure functions, nothing random without a seed. See docs/statistics.md.

Plain Python: numpy is loaded only where a plan declares looks.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import comb, exp, fsum, log, sqrt
from statistics import NormalDist
from typing import Literal, NamedTuple

from terminalbench.analytics.model import Interval
from terminalbench.analytics.special import (
    beta_quantile,
    log_choose,
    normal_tail,
    positive_chance,
    student_quantile,
)

TASKS_LIKE_THESE = "What would the result be on similar tasks?"
THESE_TASKS = "What would the result be if the same tasks were attempted again?"
_NOISE = 1e-9
_NODES_PER_STEP = 8


@dataclass(frozen=True)
class PairedDifferences:
    """Per-task differences with the unit (task or family) each belongs to: the sample of a comparison."""

    differences: Sequence[float]
    units: Sequence[int]

    @cached_property
    def mean(self) -> float:
        """The estimate: tasks weigh equally, however many attempts each has."""
        return fsum(self.differences) / len(self.differences)  # whatever the order of the tasks

    @cached_property
    def unit_sizes(self) -> list[int]:
        """Return how many tasks each unit has."""
        return by_unit([1] * len(self.units), self.units)

    @property
    def unit_count(self) -> int:
        """Return how many independent units there are."""
        return len(self.unit_sizes)

    def unit_sums(self, centre: float = 0.0) -> list[float]:
        """The differences to `centre`, added up by unit."""
        sums = by_unit([value - centre for value in self.differences], self.units)
        noise = _NOISE * max(map(abs, self.differences))
        return [value if abs(value) > noise else 0.0 for value in sums]

    def standard_error(self) -> float | None:
        """Return the standard error of the mean, clustered by unit; `sd / sqrt(tasks)` when every task is a unit, None
        for a single unit."""
        count = self.unit_count
        if count < 2:
            return None
        squares = fsum(value * value for value in self.unit_sums(self.mean))
        return sqrt(count / (count - 1) * squares) / len(self.differences)


def by_unit[Number: (int, float)](values: Sequence[Number], units: Sequence[int]) -> list[Number]:
    """The values added up by unit."""
    if len(units) == max(units) + 1:  # each its own
        return list(values)
    sums: list[Number] = [0] * (max(units) + 1)
    for value, unit in zip(values, units, strict=True):
        sums[unit] += value
    return sums


def paired(differences: Sequence[float], units: Sequence[object] | None = None) -> PairedDifferences:
    """The sample of per-task differences; `units` names the family of each task, by default its own."""
    values = [float(value) for value in differences]
    if units is None:
        return PairedDifferences(values, range(len(values)))
    numbers: dict[object, int] = {}
    return PairedDifferences(values, [numbers.setdefault(unit, len(numbers)) for unit in units])


def mean_interval(sample: PairedDifferences, alpha: float, reach: tuple[float, float] | None = None) -> Interval | None:
    """Student's interval of the mean over units: about tasks like these. None when it cannot be computed.

    Without any variation Student's interval has no width. Then, for values that cannot leave `reach`, the exact bound
    holds: at most a share `1 - alpha**(1 / units)` of all tasks can be unlike the ones seen.
    """
    error = sample.standard_error()
    if error is None:
        return None
    mean, count = sample.mean, sample.unit_count
    if error > 0:
        half = student_quantile(1 - alpha / 2, count - 1) * error
        low, high = mean - half, mean + half
        if reach is not None:
            low, high = max(low, reach[0]), min(high, reach[1])
        return Interval(low, high, 1 - alpha, f"t({count - 1})", TASKS_LIKE_THESE)
    if reach is None:
        return None
    unlike = 1 - alpha ** (1 / count)  # so many tasks can have stayed unseen, as unlike the seen ones as possible
    low, high = mean - unlike * (mean - reach[0]), mean + unlike * (reach[1] - mean)
    return Interval(low, high, 1 - alpha, "exact, all tasks alike", TASKS_LIKE_THESE)


def beyond_p(sample: PairedDifferences, at: float, far: float) -> float:
    """p of "the true mean is at `at` or beyond it, towards `far`", for differences that cannot leave -1 to 1.

    One task (or family, of the largest size) is added at `far`, and the tasks get random Dirichlet weights; p is the
    chance that their weighted mean lies beyond `at`. For differences of two values this is Clopper and Pearson's exact
    bound; for all ties `1 - p ** (1 / n)` of all tasks can be unlike them.
    """
    side = 1.0 if far > at else -1.0
    counts = {max(sample.unit_sizes) * abs(far - at): 1}
    for total, size in zip(by_unit(sample.differences, sample.units), sample.unit_sizes, strict=True):
        weight = round(side * (total - at * size), 12)
        counts[weight] = counts.get(weight, 0) + 1
    return positive_chance(counts)


def bound(sample: PairedDifferences, alpha: float, far: float) -> float:
    """Return how far towards `far` the true mean may lie, with error `alpha` on this side: where `beyond_p` falls to
    it."""
    wanted = NormalDist().inv_cdf(alpha)

    def above(at: float) -> float:
        return NormalDist().inv_cdf(min(max(beyond_p(sample, at, far), 1e-15), 1 - 1e-15)) - wanted

    near, there = sample.mean, far  # p is above alpha at `near`, at most alpha at `there`
    if near == far or (at_near := above(near)) <= 0:
        return near
    at_there = -wanted - 8.0
    for _ in range(60):
        middle = near + (there - near) * at_near / (at_near - at_there)
        found = above(middle)
        if found > 0:
            near, at_near, at_there = middle, found, at_there / 2
        else:
            there, at_there, at_near = middle, found, at_near / 2
        if abs(there - near) < 1e-6 or -1e-4 < found <= 0:
            break
    return there


def equivalence_interval(sample: PairedDifferences, alpha: float) -> Interval:
    """Return what must lie within the margins for a claim of "no difference": each side has the whole `alpha` (TOST).

    A few tasks that hardly vary say nothing of rare ones that would: the added task stands for those not seen.
    """
    low, high = (bound(sample, alpha, far) for far in (-1.0, 1.0))
    return Interval(low, high, 1 - 2 * alpha, "one task added at the far end", TASKS_LIKE_THESE)


class MarginFit(NamedTuple):
    """Whether a test shows that the true mean lies above the lower end of a margin, and below its upper end."""

    low: bool
    high: bool


def margin_fit(sample: PairedDifferences, margin: float, alpha: float) -> MarginFit:
    """Return what `equivalence_interval` shows of a margin, without looking for its ends: one test a side."""
    return MarginFit(*(beyond_p(sample, far * margin, far) <= alpha for far in (-1.0, 1.0)))


@dataclass(frozen=True)
class Cells:
    """One profile's values by task: how many, their sum, the sum of their squares."""

    count: Sequence[float]
    total: Sequence[float]
    squares: Sequence[float]

    @cached_property
    def mean(self) -> list[float]:
        """The mean of each task."""
        return [total / count for total, count in zip(self.total, self.count, strict=True)]

    @cached_property
    def error_squared(self) -> list[float]:
        """The squared standard error of each task's mean, from its attempts alone."""
        every = zip(self.count, self.total, self.squares, strict=True)
        return [max(squares - total**2 / count, 0.0) / (count - 1) / count for count, total, squares in every]


def suite_interval(new: Cells, old: Cells, alpha: float, reach: tuple[float, float] | None = None) -> Interval | None:
    """Interval of the mean difference on exactly these tasks: only the luck of the attempts varies.

    None unless every task has two attempts under both, or when no task varied at all. `reach` bounds what it can be.
    """
    counts = [*new.count, *old.count]
    if not counts or min(counts) < 2:
        return None
    parts = [*new.error_squared, *old.error_squared]
    total = fsum(parts)
    if total <= 0:
        return None
    freedom = total**2 / fsum(part**2 / (count - 1) for part, count in zip(parts, counts, strict=True))
    half = student_quantile(1 - alpha / 2, freedom) * sqrt(total) / len(new.count)
    mean = (fsum(new.mean) - fsum(old.mean)) / len(new.count)
    low, high = mean - half, mean + half
    if reach is not None:
        low, high = max(low, reach[0]), min(high, reach[1])
    return Interval(low, high, 1 - alpha, f"t({freedom:.0f}), attempts only", THESE_TASKS)


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Holm's adjustment of a family of p values; those that are None were not tested and do not count."""
    tested = sorted((value, place) for place, value in enumerate(values) if value is not None)
    adjusted: list[float | None] = [None] * len(values)
    highest = 0.0
    for rank, (value, place) in enumerate(tested):
        highest = max(highest, min(1.0, (len(tested) - rank) * value))
        adjusted[place] = highest
    return adjusted


def holm_steps(values: Sequence[float | None]) -> list[int]:
    """Return by how much Holm's procedure multiplies each p: the strictest step for the smallest."""
    tested = sorted((value, place) for place, value in enumerate(values) if value is not None)
    steps = [1] * len(values)
    for rank, (_, place) in enumerate(tested):
        steps[place] = len(tested) - rank
    return steps


def effective_count(sample: PairedDifferences, trials: int) -> float:
    """Return how many independent trials a rate clustered by unit is worth: between 1 and `trials`."""
    rate, error = sample.mean, sample.standard_error()
    spread = rate * (1 - rate)
    if error is None or trials < 2:
        return 1.0
    if error <= 0 or spread <= _NOISE:
        return float(sample.unit_count)
    return float(min(max(spread / error**2 * trials / (trials - 1), 1.0), trials))


@lru_cache(maxsize=4096)
def jeffreys(passed: int, count: int, alpha: float) -> Interval:
    """Jeffreys' interval of one task's pass rate; 0 of n reaches down to 0, n of n up to 1."""
    a, b = passed + 0.5, count - passed + 0.5
    low = 0.0 if passed == 0 else beta_quantile(alpha / 2, a, b)
    high = 1.0 if passed == count else beta_quantile(1 - alpha / 2, a, b)
    return Interval(low, high, 1 - alpha, "Jeffreys", "How often would this task be solved?")


@lru_cache(maxsize=4096)
def pass_at_k(count: int, passed: int, k: int) -> float:
    """Chance that at least one of `k` attempts passes, unbiased from `count` attempts (k at most `count`)."""
    return 1.0 - comb(count - passed, k) / comb(count, k)


@lru_cache(maxsize=4096)
def pass_hat_k(count: int, passed: int, k: int) -> float:
    """Chance that all of `k` attempts pass, unbiased from `count` attempts (k at most `count`)."""
    return comb(passed, k) / comb(count, k)


def ratio_interval(above: Sequence[float], below: Sequence[float], alpha: float) -> Interval | None:
    """Fieller's interval, over units, of a ratio of totals. None where the total below the line may well be zero."""
    count = len(above)
    if count < 2 or fsum(below) <= 0:
        return None
    top, bottom = fsum(above) / count, fsum(below) / count
    share = student_quantile(1 - alpha / 2, count - 1) ** 2 / (count - 1) / count
    spread = share * fsum((a - top) ** 2 for a in above), share * fsum((b - bottom) ** 2 for b in below)
    both = top * bottom - share * fsum((a - top) * (b - bottom) for a, b in zip(above, below, strict=True))
    square = bottom**2 - spread[1]
    if square <= 0:
        return None
    root = sqrt(max(both**2 - square * (top**2 - spread[0]), 0.0))
    low, high = (both - root) / square, (both + root) / square
    return Interval(max(low, 0.0), high, 1 - alpha, f"Fieller, t({count - 1}) over tasks", TASKS_LIKE_THESE)


def fisher_p(first: tuple[int, int], second: tuple[int, int]) -> float:
    """Fisher's exact two-sided p that two (yes, no) counts have the same rate."""
    (a, b), (c, d) = first, second
    yes, rows, total = a + c, a + b, a + b + c + d
    if yes in (0, total) or rows in (0, total):
        return 1.0
    chances = {
        seen: exp(log_choose(rows, seen) + log_choose(total - rows, yes - seen) - log_choose(total, yes))
        for seen in range(max(0, yes - (c + d)), min(yes, rows) + 1)
    }
    return min(1.0, fsum(chance for chance in chances.values() if chance <= chances[a] * (1 + 1e-7)))


@lru_cache(maxsize=64)
def obrien_fleming(looks: int, alpha: float) -> tuple[float, ...]:
    """The |z| that decides at each of `looks` equally spaced looks, two-sided error `alpha` over all of them."""
    constant = NormalDist().inv_cdf(1 - alpha / 2)  # of one look; more of them need a little more
    before, excess = constant + 0.1, log(_crossing(looks, constant + 0.1) / alpha)
    step = 1.0
    while abs(step) > 1e-9:  # secants: a bisection would take four times as long
        now = log(_crossing(looks, constant) / alpha)
        step = now * (constant - before) / (now - excess) if now != excess else 0.0
        before, excess, constant = constant, now, constant - step
    return tuple(constant * sqrt(looks / look) for look in range(1, looks + 1))


def nominal_level(look: int, looks: int, alpha: float) -> float:
    """The two-sided p that decides at one look: tiny at first, near `alpha` at the end."""
    return 2 * normal_tail(obrien_fleming(looks, alpha)[look - 1])


def last_level(looks: int | Literal["any"], alpha: float) -> float:
    """The two-sided p that decides in the end: at the last of the declared looks, if there are several."""
    return alpha if looks in (1, "any") else nominal_level(looks, looks, alpha)


def _crossing(looks: int, constant: float) -> float:
    """Chance that a walk of standard normal steps leaves +-constant * sqrt(looks) within `looks` steps."""
    import numpy as np

    bound = constant * sqrt(looks)
    if bound <= 0:
        return 1.0
    points, weights = np.polynomial.legendre.leggauss(32 + round(_NODES_PER_STEP * bound))
    points, weights = points * bound, weights * bound
    density = np.exp(-(points**2) / 2) / sqrt(2 * np.pi)
    step = np.exp(-((points[:, None] - points[None, :]) ** 2) / 2) / sqrt(2 * np.pi)
    for _ in range(looks - 1):
        density = step @ (weights * density)
    return 1.0 - float((weights * density).sum())


def look_reached(done: int, planned: int, looks: int) -> int:
    """The last of `looks` equally spaced looks that is due with `done` of `planned` trials; 0 is before the first."""
    return min(looks, int(looks * done / planned + 1e-9)) if planned else 0


class Stratum(NamedTuple):
    """The attempts at one task: the newer ones and the older ones, each passed of measured."""

    passed: int
    measured: int
    passed_before: int
    measured_before: int

    @property
    def informative(self) -> bool:
        """Return whether it can speak: both sides have attempts, and not all came to the same."""
        passed = self.passed + self.passed_before
        count = self.measured + self.measured_before
        return self.measured > 0 and self.measured_before > 0 and 0 < passed < count


class ExactLikelihood(NamedTuple):
    """How likely so few, and so many, passes are among the newer attempts when nothing changed."""

    fewer: float
    more: float
    informative: int

    @property
    def two_sided(self) -> float:
        """Twice the smaller of the two."""
        return min(1.0, 2 * min(self.fewer, self.more))


def stratified(strata: Iterable[Stratum]) -> ExactLikelihood:
    """The test over all tasks. Tasks that cannot speak count for nothing."""
    speaking = [one for one in strata if one.informative]
    law = [1.0]
    observed = lowest = 0
    for one in speaking:
        law = _added(law, _urn(one))
        observed += one.passed
        lowest += _least(one)
    place = observed - lowest
    return ExactLikelihood(min(1.0, fsum(law[: place + 1])), min(1.0, fsum(law[place:])), len(speaking))


def _least(one: Stratum) -> int:
    return max(0, one.passed + one.passed_before - one.measured_before)


def _urn(one: Stratum) -> list[float]:
    """The chances of each number of passes among the newer attempts, from the least that is possible."""
    passed, count = one.passed + one.passed_before, one.measured + one.measured_before
    ways = comb(count, one.measured)
    most = min(one.measured, passed)
    return [
        comb(passed, drawn) * comb(count - passed, one.measured - drawn) / ways
        for drawn in range(_least(one), most + 1)
    ]


def _added(law: Sequence[float], other: Sequence[float]) -> list[float]:
    """The law of the sum of two independent numbers."""
    found = [0.0] * (len(law) + len(other) - 1)
    for place, chance in enumerate(law):
        for more, share in enumerate(other):
            found[place + more] += chance * share
    return found
