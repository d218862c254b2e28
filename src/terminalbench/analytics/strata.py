"""The exact test whether some attempts at the same tasks differ from others. Pure; see docs/statistics.md.

Under "nothing changed" the attempts at one task are exchangeable: of all that passed, those among the newer attempts
are drawn as from an urn. The passes of all tasks are added up. With one attempt a side it is McNemar's exact test, with
one task Fisher's. It is about these tasks attempted again, not about tasks like these.
"""

from collections.abc import Iterable, Sequence
from math import comb, fsum
from typing import NamedTuple


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
