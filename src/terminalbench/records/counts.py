"""The vocabulary of sums over trials: counts of verdicts, pass rates, and what was spent. Unknown is not zero."""

from collections import defaultdict
from collections.abc import Iterable
from math import fsum
from typing import Protocol

import msgspec

from terminalbench.records.trial import Outcome, TaskRef, Usage
from terminalbench.records.values import known_total


class Counts(msgspec.Struct, frozen=True):
    """Trials: passed of measured. What has no verdict is in neither."""

    passed: int = 0
    measured: int = 0

    @property
    def rate(self) -> float | None:
        """The measured pass rate."""
        return self.passed / self.measured if self.measured else None

    @property
    def mixed(self) -> bool:
        """True when some passed and some failed."""
        return 0 < self.passed < self.measured

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(self.passed + other.passed, self.measured + other.measured)

    def __str__(self) -> str:
        return f"{self.passed}/{self.measured}"


class Spend(msgspec.Struct, frozen=True):
    """Sums over what is known (None: nothing is), and how many trials did not say. Unknown is not zero."""

    cost_usd: float | None = None
    cost_unknown: int = 0
    tokens: int | None = None
    tokens_unknown: int = 0

    @classmethod
    def total(cls, parts: Iterable["Spend"]) -> "Spend":
        """All of it together. Where nothing is unknown, because nothing ran, it is nothing."""
        every = list(parts)
        costs, tokens = sum(part.cost_unknown for part in every), sum(part.tokens_unknown for part in every)
        usd, known = known_total(part.cost_usd for part in every), known_total(part.tokens for part in every)
        nothing = 0.0 if usd is None and not costs else usd
        return cls(nothing, costs, 0 if known is None and not tokens else known, tokens)

    @classmethod
    def of(cls, usage: Usage) -> "Spend":
        """Return what one trial spent."""
        tokens = usage.total_tokens
        return cls(usage.cost_usd, int(usage.cost_usd is None), tokens, int(tokens is None))


class RatedTrial(Protocol):
    """A planned trial, as a pass rate sees it."""

    @property
    def task(self) -> TaskRef: ...
    @property
    def outcome(self) -> Outcome: ...


class Rates(msgspec.Struct, frozen=True):
    """The pass rate of a profile: the mean over tasks, so that a task with more attempts does not weigh more.

    `rate` is of the measured trials, over the tasks that have one; None when there is none. `rate_all` is of all
    planned trials: what was not measured counts as not passed.
    """

    rate: float | None = None
    rate_all: float | None = None


def pass_rates(trials: Iterable[RatedTrial]) -> Rates:
    """Return the pass rate over the planned trials of one profile."""
    tasks: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for trial in trials:
        tasks[trial.task.dataset, trial.task.id].append(trial.outcome)
    counts = [(found.count(Outcome.PASSED), sum(o.measured for o in found), len(found)) for found in tasks.values()]
    return Rates(
        _mean([passed / measured for passed, measured, _ in counts if measured]),
        _mean([passed / planned for passed, _, planned in counts]),
    )


def _mean(values: list[float]) -> float | None:
    return fsum(values) / len(values) if values else None
