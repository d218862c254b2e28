"""Decisions by money and time on whether one more trial may start. Pure: over the state of a gate.

Each profile has its share of the budget until the others are through or need less. docs/design/running.md says why.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec

from terminalbench.experiments.plan import ExclusionKind
from terminalbench.harbor.limits.accounts import (
    SMALL_USD,
    Account,
    KnownCost,
    TrialRefusal,
    Turn,
    exceeded,
    fair_shares,
    over_usd,
    spent_words,
)
from terminalbench.harbor.limits.clock import SharedClock
from terminalbench.harbor.limits.pacing import Lane, draw, start_at
from terminalbench.records.event import WaitKind
from terminalbench.text.numbers import dollars

GUESS_USD = 1.0
"""What a try of unknown cost is taken to cost while nothing is known about its profile."""
_NEAR = 10
"""A budget is near while it is less than so many times what the unpriced trials that would run are taken to cost."""
_NAMED = 3
_APART = "\n"
"""Between the folder of another batch and its profile, in the accounts of a shared gate."""


class GateState(msgspec.Struct, omit_defaults=True):
    """The limits of a batch, and the account of each profile.

    `free` are profiles whose agent calls no model, or one that costs nothing: no budget holds them. `lanes` are the
    models under pressure. Its times are those of its `clock`. `shared` is what the gate is called whose batches it
    stands for together.
    """

    budget_usd: float | None = None
    deadline: float | None = None
    guess_usd: float = GUESS_USD
    accounts: dict[str, Account] = {}
    free: list[str] = []
    seed: int = 0
    lanes: dict[str, Lane] = {}
    clock: SharedClock = msgspec.field(default_factory=SharedClock.here)
    shared: str | None = None

    def account(self, profile: str) -> Account:
        """That of a profile; an empty one while the gate has not heard of it."""
        return self.accounts.get(profile, Account())

    def change(self, profile: str, account: Account) -> None:
        """Put an account in the place of the one before."""
        self.accounts = {**self.accounts, profile: account}

    @property
    def known_usd(self) -> float:
        """The sum of the costs that are known."""
        return sum(account.known.usd for account in self.accounts.values())

    @property
    def unknown(self) -> int:
        """Ended tries of unknown cost."""
        return sum(account.unknown for account in self.accounts.values())

    @property
    def spent_usd(self) -> float:
        """The sum that counts as spent: the known costs, and the probable ones of tries that told none."""
        return sum(account.spent_usd(self.guess_usd) for account in self.accounts.values())

    @property
    def over_usd(self) -> float | None:
        """Return by how much the known costs pass the budget; None when they do not."""
        return over_usd(self.budget_usd, self.known_usd)

    @property
    def over_said(self) -> str | None:
        """The same in words."""
        over = self.over_usd
        return None if over is None else exceeded(self.budget_name, over, spent_words(self.known_usd, self.unknown))

    @property
    def budget_name(self) -> str:
        """The budget in words."""
        shared = f" of the {self.shared}" if self.shared else ""
        return f"the budget of {dollars(self.budget_usd)}{shared}"

    @property
    def spent_said(self) -> str:
        """The amount spent, in words."""
        return spent_words(self.known_usd, self.unknown, self.spent_usd - self.known_usd)

    def refusal(self, profile: str, now: float) -> TrialRefusal | None:
        """Return why a trial of this profile may not start, for now or for good; None when it may."""
        if self.deadline is not None and now >= self.deadline:
            whose = f"of the {self.shared}" if self.shared else "(run.run_timeout_sec)"
            return TrialRefusal(f"the deadline {whose} has passed", ExclusionKind.DEADLINE)
        if self.budget_usd is None or profile in self.free:
            return None
        return _BudgetQuestion(self, profile, self.budget_usd).refusal()

    def why_closed(self, profile: str, now: float) -> TrialRefusal | None:
        """Return why no trial of this profile starts any more, or None while one may, now or when others have ended."""
        refusal = self.refusal(profile, now)
        return refusal if refusal is not None and refusal.final else None

    def why_shut(self, now: float) -> TrialRefusal | None:
        """Return why nothing starts any more, whatever the profile: the deadline, or a budget that is spent."""
        if self.deadline is not None and now >= self.deadline:
            return self.refusal("", now)
        spent = self.budget_usd is not None and self.spent_usd >= self.budget_usd - SMALL_USD
        return (
            TrialRefusal(f"{self.budget_name} is used up ({self.spent_said})", ExclusionKind.BUDGET) if spent else None
        )

    def hold_usd(self, profile: str) -> float:
        """Return what a trial that starts now holds until it ends: its probable cost, if unknown no more than fits."""
        if profile in self.free:
            return 0.0
        price = self.account(profile).price_usd
        if price is not None:
            return price
        if self.budget_usd is None:
            return self.guess_usd
        return min(self.guess_usd, _BudgetQuestion(self, profile, self.budget_usd).room_usd)

    def affords(self, profile: str) -> int | None:
        """Return how many more trials of a profile its share has room for; None: no limit, or its cost is not known."""
        price = self.account(profile).price_usd
        if self.budget_usd is None or profile in self.free or not price:
            return None
        question = _BudgetQuestion(self, profile, self.budget_usd)
        return int(max(0.0, question.room_usd + SMALL_USD) / price)

    def let_in_at(self, trial: str, lane: str) -> float:
        """Return when the rate limit of its lane lets a trial start; each has a moment of its own."""
        found = self.lanes.get(lane, Lane())
        return start_at(found, draw(self.seed, lane, found.level, trial))


class _BudgetQuestion:
    """The room for one more trial of `profile`, beside all that the accounts hold and want."""

    def __init__(self, state: GateState, profile: str, budget_usd: float) -> None:
        self.state, self.profile, self.budget_usd, self.guess = state, profile, budget_usd, state.guess_usd
        self.own = state.account(profile).asking()
        self.accounts = {**state.accounts, profile: self.own}
        self.committed = {key: account.committed_usd(self.guess) for key, account in self.accounts.items()}
        self.left = self.budget_usd - sum(self.committed.values())

    @cached_property
    def shares(self) -> dict[str, float]:
        """The share of each profile in the budget, for now. One that has no use for its rest leaves it to all."""
        needs = {key: account.need_usd(self.guess) for key, account in self.accounts.items()}
        while True:
            bounds = [(self.committed[key], need) for key, need in needs.items()]
            shares = dict(zip(needs, fair_shares(self.budget_usd, bounds), strict=True))
            stuck = [key for key, need in needs.items() if need > self.committed[key] and self._is_stuck(key, shares)]
            if not stuck:
                return shares
            needs |= {key: self.committed[key] for key in stuck}

    def _is_stuck(self, key: str, shares: Mapping[str, float]) -> bool:
        """Return whether no trial of it fits into its share, and none runs that could turn out cheaper."""
        account = self.accounts[key]
        return account.active and not account.running and not account.fits(shares[key] - self.committed[key])

    def _room(self, key: str) -> float:
        return self.shares[key] - self.committed[key]

    @cached_property
    def claims(self) -> dict[str, float]:
        """The part of the other shares that is reserved: the others may still use it."""
        return {key: self._claim(key, account) for key, account in self.accounts.items() if account.active}

    def _claim(self, key: str, account: Account) -> float:
        """All that is left of its share; nothing when no trial fits, and none runs that could turn out cheaper."""
        room = self._room(key)
        return max(0.0, room) if account.running or account.fits(room) else 0.0

    def _unclaimed(self, key: str) -> float:
        """Return what one of them may use that does not fit into its share."""
        return self.left - sum(claim for other, claim in self.claims.items() if other != key)

    def _left_overs(self) -> Iterator[str]:
        """Return who could start a trial with what the others do not claim, the one that has had least first."""
        order = sorted(self.claims, key=lambda key: self.committed[key])
        return (
            key
            for key in order
            if not self.accounts[key].fits(self._room(key)) and self.accounts[key].fits(self._unclaimed(key))
        )

    @property
    def room_usd(self) -> float:
        """The most that the profile may use now."""
        return max(self._room(self.profile), self._unclaimed(self.profile), 0.0)

    def refusal(self) -> TrialRefusal | None:
        own, name = self.own, self.profile
        if own.price_usd is None and own.running:
            said = f"the cost of a trial of {name} is unknown: one trial at a time until the first one reports it"
            return TrialRefusal(said, ExclusionKind.BUDGET, WaitKind.FIRST_COST)
        if own.price_usd is None and (beside := self._unpriced_beside()):
            said = (
                f"{_names(beside)} and {name} have reported no cost yet: near {self.state.budget_name}, they take turns"
            )
            return TrialRefusal(said, ExclusionKind.BUDGET, WaitKind.FIRST_COST)
        fits = self.left > -SMALL_USD and own.fits(self._room(name))
        if fits or next(self._left_overs(), None) == name:
            return None
        if not own.fits(self.budget_usd - self.state.spent_usd):  # whatever the running ones turn out to cost
            return self._used_up()
        if own.running:
            said = f"the rest of {self.state.budget_name} is reserved for running trials"
            return TrialRefusal(said, ExclusionKind.BUDGET, WaitKind.BUDGET)
        first = next(self._left_overs(), None)
        wanting = [key for key, claim in self.claims.items() if claim > SMALL_USD or key == first]
        later = [key for key in wanting if self.accounts[key].turn is Turn.LATER]
        if later:  # they may need the place that this one holds
            return self._share_used_up(later)
        others = [key for key in self.accounts if key != name and self._may_leave(key, first)]
        if not others:
            return self._used_up()
        said = f"{name} has used its share of {self.state.budget_name}; waiting for what {_names(others)} do not need"
        return TrialRefusal(said, ExclusionKind.BUDGET, WaitKind.SHARE)

    def _unpriced_beside(self) -> list[str]:
        """Return the other profiles whose first trial runs, where together they may cost more than is left."""
        running = [key for key, one in self.accounts.items() if key != self.profile and one.running]
        unpriced = [key for key in running if self.accounts[key].price_usd is None]
        told = [price for one in self.accounts.values() if (price := one.price_usd) is not None]
        near = self.left < _NEAR * max(told, default=self.guess) * (len(unpriced) + 1)
        return unpriced if near else []

    def _may_leave(self, key: str, first: str | None) -> bool:
        """Return whether another may give something back, or has to be let in first."""
        return bool(self.accounts[key].running) or self.claims.get(key, 0.0) > SMALL_USD or key == first

    def _another(self) -> str:
        price, likely = self.own.price_usd, self.own.likely
        if price is None:
            return ""
        source = f" ({likely})" if likely is not None and not self.own.known.trials else ""
        return f"; another trial costs about {dollars(price)}{source}"

    def _used_up(self) -> TrialRefusal:
        left = self.budget_usd - self.state.spent_usd > SMALL_USD
        said = f"{self.state.budget_name} is used up ({self.state.spent_said}{self._another() if left else ''})"
        return TrialRefusal(said, ExclusionKind.BUDGET)

    def _share_used_up(self, later: list[str]) -> TrialRefusal:
        own = self.own
        spent = spent_words(own.known.usd, own.unknown, own.spent_usd(self.guess) - own.known.usd)
        said = f"the share of {self.profile} in {self.state.budget_name} is used up ({spent}"
        return TrialRefusal(f"{said}{self._another()}); the rest is reserved for {_names(later)}", ExclusionKind.BUDGET)


def _names(keys: list[str]) -> str:
    """Profiles by name; those of other batches together."""
    own = [key for key in keys if _APART not in key]
    named = own if len(own) <= _NAMED else [*own[:_NAMED], "others"]
    return " and ".join([", ".join(named)] * bool(own) + ["other batches"] * (len(own) < len(keys)))


class BatchShare(msgspec.Struct, frozen=True, omit_defaults=True):
    """One batch of a shared gate: the account of each profile. The other fields are those of an earlier version."""

    accounts: dict[str, Account] = {}
    spent_usd: float = 0.0
    reserved_usd: float = 0.0
    known: KnownCost = KnownCost()

    def seen(self, *, runs: bool) -> dict[str, Account]:
        """The accounts as another batch sees them; one that `runs` no more gives nothing back."""
        if not self.accounts and self.spent_usd + self.reserved_usd:
            return {"": Account(Turn.OVER, known=KnownCost(self.known.trials, self.spent_usd + self.reserved_usd))}
        if not runs:
            return {key: account.cut_off() for key, account in self.accounts.items()}
        # Those in line there do not wait for a place that we hold.
        now = {key: Turn.NOW if one.turn is Turn.LATER else one.turn for key, one in self.accounts.items()}
        return {key: msgspec.structs.replace(one, turn=now[key]) for key, one in self.accounts.items()}


class SharedState(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The limits that several batches share, their shares by the folder of the batch, and the models under pressure.

    A person may write it, and change its budget while batches run. `called` is what it is the gate of: a night.
    """

    budget_usd: Annotated[float, msgspec.Meta(ge=0)] | None = None
    deadline: float | None = None
    lanes: dict[str, Lane] = {}
    clock: SharedClock = msgspec.field(default_factory=SharedClock.here)
    batches: dict[str, BatchShare] = {}
    called: str | None = None

    def name(self, path: Path) -> str:
        """Return what messages call it: the gate in this file, or what it is of."""
        return self.called or f"shared gate {path.name}"

    def seen_by(self, batch: str, own: GateState, runs: Callable[[str], bool]) -> GateState:
        """All batches together as one state, for a trial of one of them; `runs` says which others run."""
        others = {
            f"{name}{_APART}{key}": account
            for name, share in self.batches.items()
            if name != batch
            for key, account in share.seen(runs=runs(name)).items()
        }
        return msgspec.structs.replace(
            own, budget_usd=self.budget_usd, deadline=self.deadline, accounts={**own.accounts, **others}
        )
