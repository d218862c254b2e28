"""The formulas of a comparison: pure functions on arrays, nothing random without a seed. See docs/statistics.md.

Only `scipy.special` is used: `scipy.stats` takes far longer to load and adds nothing to these formulas.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb, exp, fsum, log, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincinv, betaln, gammaln, ndtr, stdtrit

from terminalbench.analytics.model import Interval

TASKS_LIKE_THESE = "What would it be on tasks like these?"
THESE_TASKS = "What would it be if these same tasks were attempted again?"
EXACT_UP_TO = 16
"""So many non-zero differences are tested over all their signs; more by random signs."""
DRAWS = 20_000
BOOTSTRAP_DRAWS = 2_000
_NOISE = 1e-9
_AT_ONCE = 2**20
_NODES_PER_STEP = 8
_BET_PRIOR = 2.0


@dataclass(frozen=True)
class Paired:
    """Per-task differences with the unit (task or family) each belongs to: the sample of a comparison."""

    differences: NDArray[np.float64]
    units: NDArray[np.intp]

    @property
    def mean(self) -> float:
        """The estimate: tasks weigh equally, however many attempts each has."""
        return fsum(self.differences) / len(self.differences)  # whatever the order of the tasks

    @property
    def unit_count(self) -> int:
        """How many independent units there are."""
        return int(self.units.max()) + 1

    def unit_sums(self, centre: float = 0.0) -> NDArray[np.float64]:
        """The differences to `centre`, added up by unit."""
        sums = np.bincount(self.units, self.differences - centre, self.unit_count)
        scale = float(np.abs(self.differences).max())
        return np.where(np.abs(sums) <= _NOISE * scale, 0.0, sums)

    def standard_error(self) -> float | None:
        """Of the mean, clustered by unit; `sd / sqrt(tasks)` when every task is a unit. None for a single unit."""
        count = self.unit_count
        if count < 2:
            return None
        return sqrt(count / (count - 1) * float((self.unit_sums(self.mean) ** 2).sum())) / len(self.differences)


def paired(differences: ArrayLike, units: Sequence[object] | None = None) -> Paired:
    """The sample of per-task differences; `units` names the family of each task, by default its own."""
    values = np.asarray(differences, dtype=float)
    if units is None:
        return Paired(values, np.arange(len(values)))
    numbers: dict[object, int] = {}
    return Paired(values, np.array([numbers.setdefault(unit, len(numbers)) for unit in units], dtype=np.intp))


def mean_interval(sample: Paired, alpha: float, reach: tuple[float, float] | None = None) -> Interval | None:
    """Student's interval of the mean over units: about tasks like these. None when it cannot be computed.

    Without any variation Student's interval has no width. Then, for values that cannot leave `reach`, the exact bound
    holds: at most a share `1 - alpha**(1 / units)` of all tasks can be unlike the ones seen.
    """
    error = sample.standard_error()
    if error is None:
        return None
    mean, count = sample.mean, sample.unit_count
    if error > 0:
        half = float(stdtrit(count - 1, 1 - alpha / 2)) * error
        low, high = mean - half, mean + half
        if reach is not None:
            low, high = max(low, reach[0]), min(high, reach[1])
        return Interval(low, high, 1 - alpha, f"t({count - 1})", TASKS_LIKE_THESE)
    if reach is None:
        return None
    low, high = _unseen(sample, alpha, reach)
    return Interval(low, high, 1 - alpha, "exact, all tasks alike", TASKS_LIKE_THESE)


def cautious_interval(sample: Paired, alpha: float, reach: tuple[float, float]) -> Interval | None:
    """The interval a claim of "no difference" must fit: Student's, and never narrower than if all tasks were alike.

    A few tasks that hardly vary say nothing of rare ones that would: those may be among the tasks not seen.
    """
    found = mean_interval(sample, alpha, reach)
    if found is None:
        return None
    low, high = _unseen(sample, alpha, reach)
    method = f"{found.method}, and tasks not seen"
    return Interval(min(found.low, low), max(found.high, high), 1 - alpha, method, TASKS_LIKE_THESE)


def _unseen(sample: Paired, alpha: float, reach: tuple[float, float]) -> tuple[float, float]:
    """Where the mean may lie if as many tasks as can have stayed unseen are as unlike the seen ones as possible."""
    mean, share = sample.mean, 1 - alpha ** (1 / sample.unit_count)
    return mean - share * (mean - reach[0]), mean + share * (reach[1] - mean)


@dataclass(frozen=True)
class Cells:
    """One profile's values by task: how many, their sum, the sum of their squares."""

    count: NDArray[np.float64]
    total: NDArray[np.float64]
    squares: NDArray[np.float64]

    @property
    def mean(self) -> NDArray[np.float64]:
        """The mean of each task."""
        return self.total / self.count

    @property
    def error_squared(self) -> NDArray[np.float64]:
        """The squared standard error of each task's mean, from its attempts alone."""
        spread = np.maximum(self.squares - self.total**2 / self.count, 0.0)
        return spread / (self.count - 1) / self.count


def suite_interval(new: Cells, old: Cells, alpha: float, reach: tuple[float, float] | None = None) -> Interval | None:
    """Interval of the mean difference on exactly these tasks: only the luck of the attempts varies.

    None unless every task has two attempts under both, or when no task varied at all. `reach` bounds what it can be.
    """
    if len(new.count) == 0 or min(new.count.min(), old.count.min()) < 2:
        return None
    parts = np.concatenate([new.error_squared, old.error_squared])
    total = float(parts.sum())
    if total <= 0:
        return None
    freedom = total**2 / float((parts**2 / np.concatenate([new.count - 1, old.count - 1])).sum())
    half = float(stdtrit(freedom, 1 - alpha / 2)) * sqrt(total) / len(new.count)
    mean = float((new.mean - old.mean).mean())
    low, high = mean - half, mean + half
    if reach is not None:
        low, high = max(low, reach[0]), min(high, reach[1])
    return Interval(low, high, 1 - alpha, f"t({freedom:.0f}), attempts only", THESE_TASKS)


def sign_flip_p(differences: ArrayLike, seed: int = 0) -> float:
    """Two-sided p of "no unit differs": how often random signs give a sum as far from zero.

    Exact up to 16 non-zero differences, 20,000 seeded draws above. With one attempt it is McNemar's exact test. When no
    draw comes as far, Hoeffding's bound on the exact p tells the very small ones apart that early looks ask for.
    """
    values = np.asarray(differences, dtype=float)
    scale = float(np.abs(values).max()) if len(values) else 0.0
    if scale == 0:
        return 1.0
    values = np.round(values / scale, 9)
    observed = abs(float(values.sum())) - _NOISE * len(values)
    sizes = np.sort(np.abs(values[values != 0]))
    if len(sizes) <= EXACT_UP_TO:
        sums = np.zeros(1)
        for size in sizes:
            sums = np.concatenate([sums + size, sums - size])
        return float((np.abs(sums) >= observed).mean())
    hits = int((np.abs(_random_sums(sizes, seed)) >= observed).sum())
    drawn = (hits + 1) / (DRAWS + 1)
    return drawn if hits else min(drawn, 2 * exp(-(observed**2) / (2 * float((sizes**2).sum()))))


def _random_sums(sizes: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Sums of `sizes` under random signs, a random bit each; eight at a time, from a table of their 256 sums."""
    groups = -(-len(sizes) // 8)
    eights = np.zeros((groups, 8))
    eights.ravel()[: len(sizes)] = sizes
    tables = (eights @ np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).T).ravel()
    drawn = np.frombuffer(np.random.default_rng(seed).bytes(DRAWS * groups), dtype=np.uint8).reshape(DRAWS, groups)
    offsets = np.arange(0, 256 * groups, 256)
    parts = np.array_split(drawn, -(-drawn.size // _AT_ONCE))
    return 2 * np.concatenate([tables[part + offsets].sum(axis=1) for part in parts]) - sizes.sum()


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Holm's adjustment of a family of p values; those that are None were not tested and do not count."""
    tested = sorted((value, place) for place, value in enumerate(values) if value is not None)
    adjusted: list[float | None] = [None] * len(values)
    highest = 0.0
    for rank, (value, place) in enumerate(tested):
        highest = max(highest, min(1.0, (len(tested) - rank) * value))
        adjusted[place] = highest
    return adjusted


def effective_count(sample: Paired, trials: int) -> float:
    """How many independent trials a rate clustered by unit is worth: between 1 and `trials`."""
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
    low, high = betaincinv(passed + 0.5, count - passed + 0.5, [alpha / 2, 1 - alpha / 2])
    low, high = 0.0 if passed == 0 else float(low), 1.0 if passed == count else float(high)
    return Interval(low, high, 1 - alpha, "Jeffreys", "How often would this task be solved?")


@lru_cache(maxsize=4096)
def pass_at_k(count: int, passed: int, k: int) -> float:
    """Chance that at least one of `k` attempts passes, unbiased from `count` attempts (k at most `count`)."""
    return 1.0 - comb(count - passed, k) / comb(count, k)


@lru_cache(maxsize=4096)
def pass_hat_k(count: int, passed: int, k: int) -> float:
    """Chance that all of `k` attempts pass, unbiased from `count` attempts (k at most `count`)."""
    return comb(passed, k) / comb(count, k)


def ratio_interval(above: ArrayLike, below: ArrayLike, alpha: float, seed: int = 0) -> Interval | None:
    """Bootstrap interval, over units, of a ratio of totals. None when too many draws have nothing below the line."""
    top, bottom = np.asarray(above, dtype=float), np.asarray(below, dtype=float)
    if len(top) < 2 or bottom.sum() <= 0:
        return None
    drawn = _resamples(len(top), seed)
    totals = bottom[drawn].sum(axis=1)
    usable = totals > 0
    if (~usable).mean() >= alpha / 2:
        return None
    low, high = np.quantile(top[drawn].sum(axis=1)[usable] / totals[usable], [alpha / 2, 1 - alpha / 2])
    return Interval(
        float(low), float(high), 1 - alpha, f"bootstrap over tasks, {BOOTSTRAP_DRAWS} draws", TASKS_LIKE_THESE
    )


@lru_cache(maxsize=2)
def _resamples(count: int, seed: int) -> NDArray[np.int64]:
    """Which units each bootstrap draw takes; the same for every profile of a report."""
    return np.random.default_rng(seed).integers(0, count, (BOOTSTRAP_DRAWS, count))


def fisher_p(first: tuple[int, int], second: tuple[int, int]) -> float:
    """Fisher's exact two-sided p that two (yes, no) counts have the same rate."""
    (a, b), (c, d) = first, second
    yes, rows, total = a + c, a + b, a + b + c + d
    if yes in (0, total) or rows in (0, total):
        return 1.0
    seen = np.arange(max(0, yes - (c + d)), min(yes, rows) + 1)
    log = _log_choose(rows, seen) + _log_choose(total - rows, yes - seen) - _log_choose(total, np.array(yes))
    chances = np.exp(log)
    return float(min(1.0, chances[chances <= chances[seen == a] * (1 + 1e-7)].sum()))


def _log_choose(count: int, chosen: NDArray[np.int_]) -> NDArray[np.float64]:
    return gammaln(count + 1) - gammaln(chosen + 1) - gammaln(count - chosen + 1)


@lru_cache(maxsize=64)
def obrien_fleming(looks: int, alpha: float) -> tuple[float, ...]:
    """The |z| that decides at each of `looks` equally spaced looks, two-sided error `alpha` over all of them."""
    low, high = 0.0, 6.0
    while high - low > 1e-7:
        middle = (low + high) / 2
        if _crossing(looks, middle) > alpha:
            low = middle
        else:
            high = middle
    return tuple(high * sqrt(looks / look) for look in range(1, looks + 1))


def nominal_level(look: int, looks: int, alpha: float) -> float:
    """The two-sided p that decides at one look: tiny at first, near `alpha` at the end."""
    return float(2 * ndtr(-obrien_fleming(looks, alpha)[look - 1]))


def _crossing(looks: int, constant: float) -> float:
    """Chance that a walk of standard normal steps leaves +-constant * sqrt(looks) within `looks` steps."""
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


def e_value(wins: int, losses: int) -> float:
    """Evidence against "no task differs" from discordant pairs, valid at any time: decide when it reaches 1 / alpha.

    Half a bet on more wins, half on more losses, each a Beta(2, 2) mixture over its side of one half.
    """
    return (_one_sided(wins, losses) + _one_sided(losses, wins)) / 2


def _one_sided(wins: int, losses: int) -> float:
    a = b = _BET_PRIOR
    above = 1.0 - float(betainc(wins + a, losses + b, 0.5))
    if above <= 0:
        return 0.0
    value = float(betaln(wins + a, losses + b) - betaln(a, b)) + log(above) - log(0.5) + (wins + losses) * log(2.0)
    return exp(min(value, 700.0))
