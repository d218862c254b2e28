"""The search of a night: paired successive halving. Pure.

All candidates of a round attempt the same tasks equally often; the better half goes on. Success ranks first. Cost only
breaks ties, and only the cost of trials that passed: giving up early saves nothing there. Where nothing passed there is
nothing to choose by.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2

FEWEST_MEASURED = 0.5
"""A candidate of whose trials fewer were measured has no rank."""


@dataclass(frozen=True)
class Round:
    """So many candidates go on, with so many trials each."""

    candidates: int
    trials: int


def rounds(candidates: int, trials: int) -> list[Round]:
    """Return how a night's trials are spent on candidates: the same for each round, half of the candidates in the next.

    The last round has two or three: one that is alone has nothing to be ranked against.
    """
    count = max(1, int(log2(candidates))) if candidates else 0
    found, alive, left = [], candidates, trials
    for number in range(count):
        each = left // (count - number) // alive
        found.append(Round(alive, each))
        left -= each * alive
        alive = max(1, alive // 2)
    return found


@dataclass(frozen=True)
class AttemptPlan[T]:
    """Which tasks a profile attempts, and how often."""

    tasks: tuple[T, ...]
    attempts: int

    @property
    def trials(self) -> int:
        """Trials of one profile."""
        return len(self.tasks) * self.attempts


def spread[T](tasks: Sequence[T], trials: int, start: int = 0) -> AttemptPlan[T]:
    """Spread at most `trials` over tasks: all of them equally often; or, where that is too many, the next ones in
    turn."""
    if trials >= len(tasks):
        return AttemptPlan(tuple(tasks), trials // len(tasks)) if tasks else AttemptPlan((), 0)
    return AttemptPlan(tuple(tasks[(start + n) % len(tasks)] for n in range(trials)), 1)


@dataclass(frozen=True)
class Score:
    """What a candidate did: passed of measured of planned trials, and the mean cost of those that passed, if known."""

    passed: int
    measured: int
    planned: int
    passed_cost_usd: float | None = None

    def rank(self) -> tuple[float, float]:
        """Lower is better."""
        if self.measured < FEWEST_MEASURED * self.planned or not self.measured:
            return (1.0, 0.0)
        cost = self.passed_cost_usd if self.passed_cost_usd is not None else float("inf")
        return (-self.passed / self.measured, cost)


def better_half(scores: Mapping[str, Score]) -> list[str]:
    """Return who goes on, best first: half of the candidates, none that passed nothing. Ties stay in their order."""
    ranked = sorted(scores, key=lambda name: scores[name].rank())
    return [name for name in ranked if scores[name].passed][: max(1, len(scores) // 2)]
