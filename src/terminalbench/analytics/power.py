"""How small a difference a comparison can show, from the very test that decides. Plain Python: `tbench plan` uses it.

The test is run on made-up results, seeded, in which every task gains alike, or every third: of the attempts that
did not pass, a share `gap` of one profile's pass, and of the other's that passed, as many fail. Large comparisons are
judged by a formula.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from math import ceil, comb, exp, lcm, lgamma, log, log2, sqrt
from operator import mul
from random import Random
from statistics import NormalDist
from typing import NamedTuple

from terminalbench.analytics import sign_flip

POWER = 0.8
LARGEST = 0.95
"""A comparison that cannot show even this gap shows nothing."""
_DRAWS = 240
_MANY = 48
"""With more units than these the formula is as good."""
_FINEST = 60
_PRIOR = (0.5, 0.6)
"""The usual difficulty of tasks: many are nearly always or nearly never solved."""

type Law = dict[int, float]


class TaskPair(NamedTuple):
    """One task: passed attempts of how many, by both profiles."""

    new: int
    of_new: int
    old: int
    of_old: int

    def swapped(self) -> "TaskPair":
        """Return the pair with its profiles exchanged."""
        return TaskPair(self.old, self.of_old, self.new, self.of_new)


@dataclass(frozen=True)
class Units:
    """What one unit may look like when profiles are equal: kinds of unit (the cells of its tasks) with their chances.

    `together` of them, independent, make up one unit of the comparison. The share `gaining` of the units has all of the
    gain.
    """

    kinds: dict[tuple[TaskPair, ...], float]
    together: int = 1
    gaining: float = 1.0

    @cached_property
    def step(self) -> int:
        """The lattice of the differences, at most so fine."""
        counts = {count for kind in self.kinds for cell in kind for count in (cell.of_new, cell.of_old)}
        return min(lcm(*counts), _FINEST)

    @property
    def largest(self) -> int:
        """The tasks of the largest unit."""
        return max(map(len, self.kinds)) * self.together

    def law(self, gap: float) -> Law:
        """The law of a unit's sum of differences, in `1 / step`, where new gains `gap`."""
        found: Law = {}
        for own, part in self._gains(gap):
            for kind, chance in self.kinds.items():
                for cells in (kind, tuple(cell.swapped() for cell in kind)):
                    for value, share in _sum_of([_gaining(cell, own, self.step) for cell in cells]).items():
                        found[value] = found.get(value, 0.0) + part * chance * share / 2
        return _sum_of([found] * self.together)

    def _gains(self, gap: float) -> list[tuple[float, float]]:
        """Return what a unit gains, and how many of them gain that."""
        rest = [(0.0, 1 - self.gaining)] if self.gaining < 1 else []
        return [(min(gap / self.gaining, 1.0), self.gaining), *rest]

    @cached_property
    def _parts(self) -> tuple[float, float, float, float]:
        """The mean number of tasks and its variance, the mean square of the difference, and one attempt's luck."""
        size = square = luck = sizes = 0.0
        for kind, chance in self.kinds.items():
            square += chance * sum(cell.new / cell.of_new - cell.old / cell.of_old for cell in kind) ** 2
            size += chance * len(kind)
            sizes += chance * len(kind) ** 2
            luck += chance * sum(1 / cell.of_new + 1 / cell.of_old for cell in kind) / 2
        return size, sizes - size**2, square, luck

    def moments(self, gap: float) -> tuple[float, float]:
        """The mean of a unit's sum of differences where new gains `gap`, and of its square."""
        size, sizes, square, luck = self._parts
        mean = gap * size * self.together
        own = 0.0
        for gain, part in self._gains(gap):
            own += part * ((1 - gain) ** 2 * square + gain**2 * (sizes + size**2) + gain * (1 - gain) * luck)
        own -= gap**2 * size**2
        return mean, own * self.together + mean**2


def _gaining(cell: TaskPair, gap: float, step: int) -> Law:
    """The law of one task's difference after the gain."""
    ours = [
        (round((cell.new + more) * step / cell.of_new), chance) for more, chance in _few(cell.of_new - cell.new, gap)
    ]
    theirs = [(round((cell.old - fewer) * step / cell.of_old), chance) for fewer, chance in _few(cell.old, gap)]
    found: Law = {}
    for one, chance in ours:
        for other, share in theirs:
            found[one - other] = found.get(one - other, 0.0) + chance * share
    return found


@lru_cache(maxsize=1024)
def _few(count: int, chance: float) -> tuple[tuple[int, float], ...]:
    """Return how many of `count` it is, with the chance of each."""
    return tuple((n, comb(count, n) * chance**n * (1 - chance) ** (count - n)) for n in range(count + 1))


def _sum_of(laws: Sequence[Law]) -> Law:
    """The law of the sum of independent values."""
    found = laws[0]
    for law in laws[1:]:
        both: Law = {}
        for one, chance in found.items():
            for other, share in law.items():
                both[one + other] = both.get(one + other, 0.0) + chance * share
        found = both
    return found


def observed(units: Iterable[Sequence[TaskPair]]) -> Units:
    """Units like those that were measured; which profile had which result is left open."""
    counted = Counter(tuple(sorted(cells)) for cells in units)
    return Units({kind: count / counted.total() for kind, count in counted.items()})


def planned(attempts: int, known: Sequence[tuple[int, int]] = (), together: int = 1) -> Units:
    """Units of `together` tasks: as hard as those of which (passed, count) is known, else as is usual."""
    counted = Counter(known or [(0, 0)])
    kinds: dict[tuple[TaskPair, ...], float] = {}
    for (passed, count), seen in counted.items():
        weight = seen / counted.total()
        a, b = _PRIOR[0] + passed, _PRIOR[1] + count - passed
        for new in range(attempts + 1):
            for old in range(new + 1):
                both, times = new + old, weight if new == old else 2 * weight
                chance = exp(_log_beta(a + both, b + 2 * attempts - both) - _log_beta(a, b))
                kind = (TaskPair(new, attempts, old, attempts),)
                kinds[kind] = kinds.get(kind, 0.0) + times * comb(attempts, new) * comb(attempts, old) * chance
    return Units(kinds, together)


def _log_beta(a: float, b: float) -> float:
    return lgamma(a) + lgamma(b) - lgamma(a + b)


@dataclass(frozen=True)
class DecisionRule:
    """What decides: p up to `level`; `strict` asks for the bound that needs no symmetry as well."""

    level: float
    strict: bool = False

    def shows_gain(self, values: Sequence[int], most: int) -> bool:
        """Return whether these sums of units, none above `most`, show that new is better."""
        total, square = sum(values), sum(map(mul, values, values))
        if total <= 0 or (total * total < 2 * square and self.level <= 0.1):
            return False
        skewness, at_most = sign_flip.skewness_term(values), self.level * (1 + 1e-12)
        surely = 2 * exp(-total * total / square / 2) + skewness <= self.level  # Hoeffding's bound
        if not surely and (skewness > at_most or sign_flip.sign_flip_p(values) + skewness > at_most):
            return False
        return not self.strict or sign_flip.strict_p(values, most) <= self.level

    def chance(self, units: Units, count: int, gap: float) -> float:
        """Return how often `count` units show a true gap, by the normal approximation of the test."""
        normal = NormalDist()
        mean, square = units.moments(gap)
        variance = max(square - mean**2, 1e-12)
        if self.strict:
            needed = normal.inv_cdf(1 - self.level / 2) * sqrt(count * variance + units.largest**2) + units.largest
        else:
            # Sums lie on a lattice, which the level is not: one step more is needed, on average.
            needed = normal.inv_cdf(1 - self.level / 2) * sqrt(count * square) + 1 / units.step
        return normal.cdf((count * mean - needed) / sqrt(count * variance))

    def shows(self, units: Units, count: int, gap: float) -> bool:
        """Return whether that is 4 times in 5 or more, by the test itself on made-up results."""
        law = units.law(gap)
        values = sorted(law)
        chances = list(accumulate(law[value] for value in values))
        evenly = [
            values[min(bisect_left(chances, (place + 0.5) / _DRAWS * chances[-1]), len(values) - 1)]
            for place in range(_DRAWS)
        ]
        columns = [[evenly[place] for place in order] for order in _orders(count)]
        most, found, missed = units.step * units.largest, 0, 0
        known: dict[tuple[int, ...], bool] = {}  # of results in any order: where attempts are few, most come again
        for drawn in zip(*columns, strict=True):
            sample = tuple(sorted(drawn))
            shown = known.get(sample)
            if shown is None:
                shown = known[sample] = self.shows_gain(sample, most)
            found, missed = found + shown, missed + (not shown)
            if missed > (1 - POWER) * _DRAWS or found >= POWER * _DRAWS:
                break
        return found >= POWER * _DRAWS


@lru_cache(maxsize=64)
def _orders(count: int) -> list[list[int]]:
    """The order in which each unit takes the values of the law: evenly drawn (a Latin hypercube), always the same."""
    random = Random(0)  # noqa: S311 no secret
    return [random.sample(range(_DRAWS), _DRAWS) for _ in range(count)]


def smallest_gap(units: Units, count: int, rule: DecisionRule) -> float | None:
    """The true difference that `count` units show 4 times in 5; None where they can show none."""
    largest = LARGEST * units.gaining
    if count < fewest_units(rule.level):
        return None
    rough = _where(lambda gap: rule.chance(units, count, gap) >= POWER, 0.0, largest, 12)
    if count > _MANY:
        return rough

    def shown(gap: float) -> bool:
        return rule.shows(units, count, gap)

    low, high = 0.7 * (rough or largest), min(largest, 1.3 * (rough or largest))
    if not shown(high):
        low, high = high, largest
    return _where(shown, low, high, 6) if high < largest or shown(high) else None


def _where(shown: Callable[[float], bool], low: float, high: float, steps: int) -> float | None:
    """The least gap that is shown; None when not even `high` is."""
    found = None
    for _ in range(steps):
        middle = (low + high) / 2
        if shown(middle):
            found = high = middle
        else:
            low = middle
    return high if found is not None or shown(high) else None


def fewest_units(alpha: float) -> int:
    """Return how many units must all agree before the test can reach `alpha`."""
    return ceil(log2(2 / alpha) - 1e-12)


def units_needed(units: Units, effect: float, rule: DecisionRule) -> int:
    """Return how many units show `effect` with 80 % power, if further ones are like these."""
    few, count = fewest_units(rule.level), 1
    while rule.chance(units, count, effect) < POWER and count < 10**7:
        count *= 2
    low = count // 2
    while count - low > 1:
        middle = (low + count) // 2
        low, count = (low, middle) if rule.chance(units, middle, effect) >= POWER else (middle, count)
    count = max(count, few)
    while count <= _MANY and not rule.shows(units, count, effect):
        count += max(1, count // 12)
    return count


def chance_to_differ(z: float, share: float, level: float) -> float:
    """Return how likely the whole shows a difference at `level`, when a `share` of it is `z` from zero.

    Of the true difference nothing is known but that share: the sum moves on as a random walk does (predictive power).
    """
    normal, rest = NormalDist(), sqrt(1 - share)
    edge = normal.inv_cdf(1 - level / 2) * sqrt(share)
    return normal.cdf((abs(z) - edge) / rest) + normal.cdf((-abs(z) - edge) / rest)


def chance_to_fit(difference: float, error: float, share: float, level: float, margin: float, units: int) -> float:
    """Return how likely the whole shows that a difference lies within `margin`, from a `share` of it, in the same way.

    With all ties, `units` cannot exclude rare differences (`stats.equivalence_interval`).
    """
    normal = NormalDist()
    room = margin - max(normal.inv_cdf(1 - level) * error * sqrt(share), -log(level) / units)
    spread = error * sqrt(1 - share)
    if room <= 0 or spread <= 0:
        return float(abs(difference) < room)
    return normal.cdf((room - difference) / spread) - normal.cdf((-room - difference) / spread)


def smallest_shift(moment: float, units: int, level: float) -> float | None:
    """The smallest true difference of costs, tokens or times found 4 times in 5, by the usual formula.

    `moment` is the mean square of a unit's difference: a larger true difference leaves less of it to chance.
    """
    if units < fewest_units(level):
        return None
    normal = NormalDist()
    squared = (normal.inv_cdf(1 - level / 2) + normal.inv_cdf(POWER)) ** 2 * (1 + 2 / (units - 1))
    return sqrt(squared * moment / (units + squared))
