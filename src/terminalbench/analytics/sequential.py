"""Looking before the end without fooling oneself: O'Brien-Fleming bounds for declared looks, e-values for any time."""

from functools import lru_cache
from math import exp, log, sqrt

import numpy as np
from scipy.special import betainc, betaln, ndtr

_NODES_PER_STEP = 8
_PRIOR = 2.0


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
    a = b = _PRIOR
    above = 1.0 - float(betainc(wins + a, losses + b, 0.5))
    if above <= 0:
        return 0.0
    value = float(betaln(wins + a, losses + b) - betaln(a, b)) + log(above) - log(0.5) + (wins + losses) * log(2.0)
    return exp(min(value, 700.0))
