"""How small a difference a comparison of some size can show, and how large it must be for a wanted one.

Plain arithmetic, without numpy: `tbench plan` uses it.
"""

from math import ceil, log2, sqrt
from statistics import NormalDist

POWER = 0.8
WITHIN = 0.12
"""Typical variance of one attempt at one task: mean of p (1 - p) over suites with easy, hard and middling tasks."""
GAP_SPREAD = 0.1
"""Assumed standard deviation, between tasks, of the true difference of two profiles."""


def reach(alpha: float) -> float:
    """How many standard errors a true difference must be to be found with 80 % power at two-sided `alpha`."""
    normal = NormalDist()
    return normal.inv_cdf(1 - alpha / 2) + normal.inv_cdf(POWER)


def smallest_detectable(moment: float, units: int, alpha: float) -> float | None:
    """The smallest true difference found 4 times in 5; None when so few units can never show any.

    `moment` is the mean square of a unit's difference: a larger true difference leaves less of it to chance. The test
    by signs cannot go below `2 / 2 ** units`.
    """
    if units < fewest_units(alpha):
        return None
    squared = reach(alpha) ** 2 * (1 + 2 / (units - 1))
    return sqrt(squared * moment / (units + squared))


def fewest_units(alpha: float) -> int:
    """So many units must all agree before the test can reach `alpha`."""
    return ceil(log2(2 / alpha) - 1e-12)


def units_needed(moment: float, effect: float, alpha: float) -> int | None:
    """How many units show `effect` with 80 % power, if further ones vary like these; None without an effect."""
    if effect == 0:
        return None
    wanted = reach(alpha) ** 2 * max(moment - effect**2, 0.0) / effect**2
    return max(ceil(wanted - 1e-9), fewest_units(alpha))


def planned_moment(attempts: float, within: float = WITHIN, gap_spread: float = GAP_SPREAD) -> float:
    """The mean square to expect of a task's difference: attempts shrink one part of it, the other stays."""
    return gap_spread**2 + 2 * within / attempts
