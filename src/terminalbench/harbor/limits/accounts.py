"""Accounts of a budget: what each profile has spent and holds, and its own share. Pure."""

from collections.abc import Sequence
from enum import StrEnum
from math import inf

import msgspec

from terminalbench.experiments.plan import ExclusionKind
from terminalbench.records.event import WaitKind
from terminalbench.text.numbers import dollars, plural

SMALL_USD = 1e-9
"""What sums of costs may be off by."""

DECLARED = "declared"
"""The source of a likely cost that the experiment file declares."""


class TrialRefusal(msgspec.Struct, frozen=True, omit_defaults=True):
    """The reason why a trial may not start: for good, or until what it `waits_for` happens."""

    reason: str
    kind: ExclusionKind
    waits_for: WaitKind | None = None

    @property
    def final(self) -> bool:
        """True when waiting would not help."""
        return self.waits_for is None


class KnownCost(msgspec.Struct, frozen=True):
    """The cost of the tries whose cost is known. `trials` are those among them that say what a trial costs.

    One that broke before it cost anything says nothing.
    """

    trials: int = 0
    usd: float = 0.0

    def and_one(self, usd: float, *, measured: bool = True) -> "KnownCost":
        """Return the cost with one try more."""
        return KnownCost(self.trials + (measured or usd > 0), self.usd + usd)


class LikelyCost(msgspec.Struct, frozen=True, omit_defaults=True):
    """The probable cost of a trial before one of the batch has told its own, and the source of that estimate."""

    usd: float
    of: str = DECLARED
    trials: int = 0

    def __str__(self) -> str:
        return DECLARED if self.of == DECLARED else f"{plural(self.trials, 'earlier trial')} of {self.of}"


class Turn(StrEnum):
    """The state of a profile's demand: whether its trials ask for money now."""

    LATER = "later"
    """Other profiles of its batch run first."""
    NOW = "now"
    OVER = "over"
    """Nothing of it is to start, or its Harbor has ended."""


class Account(msgspec.Struct, frozen=True, omit_defaults=True):
    """One profile: what its ended tries cost, what its running trials hold, how many are still to start.

    `unknown` counts ended tries of unknown cost: each is taken to cost what a trial of the profile probably does.
    `closed` is why nothing more of it started when it last asked.
    """

    turn: Turn = Turn.NOW
    to_start: int = 0
    running: dict[str, float] = {}
    known: KnownCost = KnownCost()
    unknown: int = 0
    likely: LikelyCost | None = None
    closed: TrialRefusal | None = None

    @property
    def price_usd(self) -> float | None:
        """The probable cost of one more trial: the mean of its own; else what is likely; None while nothing says so."""
        if self.known.trials:
            return self.known.usd / self.known.trials
        return self.likely.usd if self.likely is not None else None

    def spent_usd(self, guess_usd: float) -> float:
        """Return what its ended tries cost, as far as it is known, and probably cost otherwise."""
        price = self.price_usd
        return self.known.usd + self.unknown * (guess_usd if price is None else price)

    def committed_usd(self, guess_usd: float) -> float:
        """Return what is spent, and what running trials hold."""
        return self.spent_usd(guess_usd) + sum(self.running.values())

    @property
    def active(self) -> bool:
        """True when the profile wants to start more trials."""
        return self.turn is not Turn.OVER and self.closed is None and self.to_start > 0

    def need_usd(self, guess_usd: float) -> float:
        """The most it will use, as far as that is known: without end while no cost is."""
        committed, price = self.committed_usd(guess_usd), self.price_usd
        if not self.active:
            return committed
        return inf if price is None else committed + self.to_start * price

    def fits(self, room_usd: float) -> bool:
        """Return whether one more trial fits into `room_usd`; one of unknown cost fits into anything."""
        price = self.price_usd
        return room_usd > SMALL_USD if price is None else price <= room_usd + SMALL_USD

    def asking(self) -> "Account":
        """Return the account as one that wants to start at least one trial now."""
        return msgspec.structs.replace(self, turn=Turn.NOW, closed=None, to_start=max(1, self.to_start))

    def entered(self, trial: str, usd: float) -> "Account":
        """Return the account with a trial that has started, and holds so much."""
        left = max(0, self.to_start - 1)
        return msgspec.structs.replace(self, running={**self.running, trial: usd}, to_start=left, closed=None)

    def without(self, trial: str) -> "Account":
        """Return the account without what a trial held."""
        running = {name: usd for name, usd in self.running.items() if name != trial}
        return msgspec.structs.replace(self, running=running)

    def settled(self, trial: str, cost_usd: float | None, *, measured: bool, again: bool) -> "Account":
        """Return the account with a try that has ended; `again`: the trial is tried once more."""
        known = self.known if cost_usd is None else self.known.and_one(cost_usd, measured=measured)
        return msgspec.structs.replace(
            self.without(trial),
            known=known,
            unknown=self.unknown + (cost_usd is None),
            to_start=self.to_start + again,
        )

    def cut_off(self) -> "Account":
        """Return the account as one of a batch that was killed: what its running trials cost is unknown, and nothing
        gives it back."""
        cut = self.unknown + len(self.running)
        return msgspec.structs.replace(self, turn=Turn.OVER, running={}, unknown=cut)


def spent_words(known_usd: float, unknown: int, taken_usd: float | None = None) -> str:
    """Return what was really spent; what tries of unknown cost are taken to cost is named as such."""
    taken = f", taken as {dollars(taken_usd)}" if taken_usd is not None else ""
    guessed = f" and {plural(unknown, 'try', 'tries')} of unknown cost{taken}" if unknown else ""
    return f"{dollars(known_usd)} spent{guessed}"


def over_usd(budget_usd: float | None, known_usd: float | None) -> float | None:
    """Return by how much known costs pass a budget; None when they do not, or there is none."""
    if budget_usd is None or known_usd is None or known_usd - budget_usd <= SMALL_USD:
        return None
    return known_usd - budget_usd


def exceeded(budget: str, over: float, spent: str) -> str:
    """The sentence that says so, the same everywhere."""
    return f"{budget} is exceeded by {dollars(over)} ({spent})"


def fair_shares(budget_usd: float, bounds: Sequence[tuple[float, float]]) -> list[float]:
    """Divide a budget: everyone gets at least the first and at most the second of its bounds, and in between alike.

    More than the budget when the least is; less when everyone has the most.
    """
    points = sorted({point for pair in bounds for point in pair if point < inf})
    level: float | None = None
    for point in points:
        if sum(_filled(point, bounds)) > budget_usd:
            break
        level = point
    if level is None:
        return [low for low, _ in bounds]
    shares = _filled(level, bounds)
    growing = [place for place, (low, high) in enumerate(bounds) if low <= level < high]
    for place in growing:
        shares[place] += (budget_usd - sum(_filled(level, bounds))) / len(growing)
    return shares


def _filled(level: float, bounds: Sequence[tuple[float, float]]) -> list[float]:
    return [min(max(level, low), high) for low, high in bounds]
