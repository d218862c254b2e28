"""The few special functions of the formulas, from the standard library alone: `scipy` takes long to load."""

from collections.abc import Mapping
from functools import lru_cache
from math import erfc, exp, fsum, inf, lgamma, log, log1p, pi, sqrt
from statistics import NormalDist

_TINY = 1e-300
_STEP = 0.125


def log_choose(count: int, chosen: int) -> float:
    """The logarithm of the binomial coefficient."""
    return lgamma(count + 1) - lgamma(chosen + 1) - lgamma(count - chosen + 1)


def beta_cdf(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function: the chance that a Beta(a, b) is at most `x`."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(x, a, b) / a
    return 1.0 - front * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, 1.0 / _away(1 - (a + b) * x / (a + 1))
    found, m = d, 0
    while True:
        m += 1
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1.0 / _away(1 + step * d), _away(1 + step / c)
            found *= d * c
        if abs(d * c - 1) < 1e-15 or m > 10_000:
            return found


def _away(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def beta_quantile(share: float, a: float, b: float) -> float:
    """The value that a Beta(a, b) stays below with this chance."""
    low, high = 0.0, 1.0
    while high - low > 1e-14 * high + 1e-300:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if beta_cdf(middle, a, b) < share else (low, middle)
    return (low + high) / 2


@lru_cache(maxsize=1024)
def student_quantile(share: float, freedom: float) -> float:
    """Student's quantile, for a share above one half: Newton's steps, kept between bounds."""
    t = low = NormalDist().inv_cdf(share)
    high = inf
    scale = lgamma((freedom + 1) / 2) - lgamma(freedom / 2) - log(freedom * pi) / 2
    for _ in range(200):
        above = beta_cdf(freedom / (freedom + t * t), freedom / 2, 0.5) / 2 - (1 - share)  # beyond t
        low, high = (t, high) if above > 0 else (low, t)
        step = above / exp(scale - (freedom + 1) / 2 * log1p(t * t / freedom))
        after = t + step if low < t + step < high else (low + high) / 2 if high < inf else 2 * t + 1
        if abs(after - t) <= 1e-14 * after:
            break
        t = after
    return t


def normal_tail(z: float) -> float:
    """The chance that a standard normal value exceeds `z`."""
    return erfc(z / sqrt(2)) / 2


def positive_chance(counts: Mapping[float, int]) -> float:
    """The chance that a sum of standard exponentials is positive, `counts` of them with each weight.

    Gil-Pelaez' integral on a logarithmic scale, where equal steps converge exponentially. The part below the first
    step is a geometric series; where the product has become large, the rest adds nothing.
    """
    if min(counts) >= 0:
        return 1.0
    scale = sqrt(fsum(count * weight * weight for weight, count in counts.items()))
    once = [weight / scale for weight, count in counts.items() if count == 1]
    often = [(weight / scale, count) for weight, count in counts.items() if count > 1]
    found, share = 0.0, 1 / (1 - exp(-_STEP))
    for place in _places():
        try:
            product = 1 + 0j
            for weight in once:
                product *= 1 + place * weight
            for weight, count in often:
                product *= (1 + place * weight) ** count
        except OverflowError:
            break
        size = product.real * product.real + product.imag * product.imag
        if not size < 1e26:
            break
        found, share = found + share * product.imag / size, 1.0
    return min(1.0, max(0.0, 0.5 + found * _STEP / pi))


@lru_cache(maxsize=1)
def _places() -> tuple[complex, ...]:
    """Return where the integral is taken."""
    return tuple(1j * exp(place * _STEP - 10) for place in range(int(90 / _STEP)))
