"""The sign-flip test over whole tasks: its exact p, what skewness adds, and looks that count a task once. Pure.

It assumes that under "no difference" a task favours either side alike. Values are integers on the lattice of the
differences (`lattice`), added up by unit. See docs/statistics.md.
"""

from collections import Counter
from collections.abc import Sequence
from heapq import merge
from itertools import repeat
from math import ceil, exp, fsum, gcd, lcm, log, pi, sqrt
from operator import mul
from typing import NamedTuple

from terminalbench.analytics.special import positive_chance

MOST_BITS = 2**22
"""The law of the sums is kept as whole numbers up to so many bits; a larger one in floating point."""
CELLS = 24_000
"""A lattice with more points is rounded, and what the rounding can do is conceded."""
FEW = 24
"""So many differences that share no lattice are tested over all their signs."""
GRID = 10**9
FLIPS = 20_000
ALL_SIGNS = 14


def lattice(new: Sequence[tuple[int, int]], old: Sequence[tuple[int, int]]) -> tuple[list[int], int]:
    """Differences of (passed, count) as whole numbers of `1 / step`, and the step."""
    step = lcm(*{count for side in (new, old) for _, count in side})
    pairs = zip(new, old, strict=True)
    return [a * (step // m) - b * (step // n) for (a, m), (b, n) in pairs], step


def on_grid(values: Sequence[float]) -> list[int]:
    """Real values (costs, seconds) as whole numbers: nine digits of the largest."""
    largest = max(map(abs, values), default=0.0)
    return [round(value / largest * GRID) for value in values] if largest > 0 else [0] * len(values)


def sign_flip_p(values: Sequence[int]) -> float:
    """Two-sided p: how often random signs give a sum at least as far from zero. Exact; no draws.

    On a lattice of very many points (more than 24 costs, many different counts of attempts) it is an upper bound, a few
    percent of p above it. With single attempts it is McNemar's exact test.
    """
    sizes = sorted(abs(value) for value in values if value)
    observed = abs(sum(values))
    if not observed:
        return 1.0
    unit = gcd(*sizes)
    sizes, observed = [size // unit for size in sizes], observed // unit
    reach = (sum(sizes) - observed) // 2  # so much of the sizes may point the other way
    if len(sizes) * (reach + 1) <= MOST_BITS:
        return min(1.0, 2 * _share_by_sum(sizes, reach))
    if len(sizes) <= FEW:
        return min(1.0, 2 * _share_by_halves(sizes, reach))
    return min(1.0, _bounded(sizes, observed))


def _share_by_sum(sizes: Sequence[int], reach: int) -> float:
    """The share of all subsets of `sizes` that add up to at most `reach`.

    How many subsets have each sum stands in the digits of one whole number, `len(sizes) + 1` bits a digit.
    """
    digit = len(sizes) + 1
    kept = (1 << digit * (reach + 1)) - 1
    counts = 1
    for size in sizes:
        if size <= reach:  # a larger one is in no such subset, and shifting by it would fill the memory
            counts = (counts + (counts << digit * size)) & kept
    # A number and the sum of its digits leave the same rest; there are fewer subsets than the divisor.
    subsets = counts % ((1 << digit) - 1)
    return subsets / (1 << len(sizes))


def _share_by_halves(sizes: Sequence[int], reach: int) -> float:
    """The same for few sizes of any kind: all sums of either half, put together in order."""
    sums = []
    for half in (sizes[::2], sizes[1::2]):
        found = [0]
        for size in half:
            found = list(merge(found, [one + size for one in found]))
        sums.append(found)
    subsets, place = 0, len(sums[1])
    for one in sums[0]:
        while place and sums[1][place - 1] > reach - one:
            place -= 1
        subsets += place
    return subsets / (1 << len(sizes))


def _bounded(sizes: Sequence[int], observed: int) -> float:
    """An upper bound of p on a coarser lattice.

    Signs move the rounded sum from the true one by their signed rounding errors: never by more than all of them, and
    by much less with a chance that Hoeffding's inequality bounds.
    """
    import numpy as np

    coarse = max(1, -(-sum(sizes) // CELLS))
    rounded = [(size + coarse // 2) // coarse for size in sizes]
    errors = [abs(size - coarse * size_now) for size, size_now in zip(sizes, rounded, strict=True)]
    total, squares = sum(rounded), sum(error * error for error in errors)
    law = np.zeros(total // 2 + 1)
    law[0] = 1.0
    for size in filter(None, rounded):
        law *= 0.5
        if size < len(law):
            law[size:] += law[:-size].copy()
    tails = np.cumsum(law)
    found = []
    for missed in (0.0, 1e-32, 1e-16, 1e-8, 1e-4):
        conceded = ceil(sqrt(2 * squares * log(2 / missed))) if missed else sum(errors)
        reach = (total - max(0, -(-(observed - conceded) // coarse))) // 2
        found.append(missed + (2 * float(tails[reach]) if reach >= 0 else 0.0))
    return min(found)


def skewness_term(values: Sequence[float]) -> float:
    """Return what is added to p where the largest differences point against the mean: many small wins, few large
    losses.

    The first Edgeworth term of a self-normalised sum. It never lowers p, and vanishes for a clear result.
    """
    count, total = len(values), fsum(values)
    second = fsum(map(mul, values, values)) / count if count else 0.0
    if second <= 0:
        return 0.0
    third = fsum(map(pow, values, repeat(3))) / count
    against = max(0.0, -(third if total > 0 else -third) / second**1.5) if total else 0.0
    x = abs(total) / sqrt(count * second)
    return against * (2 * x * x + 1) * exp(-x * x / 2) / (3 * sqrt(2 * pi * count))


def decision_p(values: Sequence[int]) -> float:
    """The p that decides: exact, plus what skewness adds."""
    return min(1.0, sign_flip_p(values) + skewness_term(values))


class Crossing(NamedTuple):
    """What looks over whole tasks say: the first that decided (from 1) with its direction, and what the last asks for.

    `level` is the largest p that the last look decides at: what of the error the looks before it have left. `z` is how
    far its sum is from zero, by the size that random signs give it.
    """

    look: int | None
    direction: int
    level: float
    z: float = 0.0


def sequential_flips(looks: Sequence[Sequence[float]], budgets: Sequence[float]) -> Crossing:
    """Look again and again at the same units: `looks` are the units' sums of differences at each look, so far.

    `budgets` says how much of the error may be used up by the end of each look. The sign of a unit is flipped in all
    looks at once, so the data are one of many equally likely rows; at no look have more rows crossed than the budget
    allows, and rows that crossed do not cross again. All signs of few units are tried, else a fixed 20,000.
    """
    import numpy as np

    if not any(any(look) for look in looks):
        return Crossing(None, 0, budgets[-1])
    sums = _signed(np.array(looks, dtype=float))
    z = fsum(looks[-1]) / sqrt(fsum(map(mul, looks[-1], looks[-1])) or 1.0)
    open_rows = np.ones(len(sums), dtype=bool)
    left = 0
    for place, budget in enumerate(budgets):
        left = int(budget * len(sums) + 1e-9) - int((~open_rows).sum())
        if left <= 0:
            continue
        values = np.where(open_rows, sums[:, place], -1.0)
        edge = np.partition(values, -left - 1)[-left - 1]  # the largest value that would be one too many
        crossed = values > max(edge, 1e-9)
        if crossed[0] and (values >= values[0]).sum() <= left - skewness_term(looks[place]) * len(sums):
            total = fsum(looks[place])
            return Crossing(place + 1, (total > 0) - (total < 0), max(left, 0) / len(sums), z)
        if place + 1 < len(budgets):
            open_rows &= ~crossed
    return Crossing(None, 0, max(left, 0) / len(sums), z)


def _signed(looks):
    """The size of each look's sum under each row of signs; the first row are the data."""
    import numpy as np

    used = looks[:, (looks != 0).any(axis=0)]
    count = used.shape[1]
    parts = [np.ones((1, count), dtype=np.int8)]
    if count <= ALL_SIGNS:
        rows = np.arange(1, 2**count, dtype=np.int64)[:, None]
        parts.append((1 - 2 * ((rows >> np.arange(count)) & 1)).astype(np.int8))
    else:
        random = np.random.default_rng(0)
        parts += [random.integers(0, 2, (FLIPS // 10, count), dtype=np.int8) * 2 - 1 for _ in range(10)]
    return np.concatenate([np.round(np.abs(part.astype(float) @ used.T), 9) for part in parts])


def strict_p(values: Sequence[int], most: int) -> float:
    """Two-sided p without any assumption of symmetry, for units that cannot differ by more than `most`.

    One unit is added at the far end, against the mean; see `stats.beyond_p`.
    """
    side = 1.0 if sum(values) < 0 else -1.0
    counts = Counter(side * value for value in values)
    counts[float(most)] += 1
    return min(1.0, 2 * positive_chance(counts))
