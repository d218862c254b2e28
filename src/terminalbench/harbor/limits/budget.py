"""Whether one more trial may start, by money and time: pure decisions over the state of a gate."""

from collections.abc import Callable
from typing import Annotated

import msgspec

from terminalbench.experiments.plan import ExclusionKind
from terminalbench.harbor.limits.clock import SharedClock
from terminalbench.harbor.limits.pacing import Lane, draw, start_at
from terminalbench.text.numbers import dollars

GUESS_USD = 1.0
"""What a trial is taken to cost while nothing is known about its profile."""


class Known(msgspec.Struct, frozen=True):
    """Trials whose cost is known, and what they cost together."""

    trials: int = 0
    usd: float = 0.0

    def and_one(self, usd: float) -> "Known":
        """With one trial more."""
        return Known(self.trials + 1, self.usd + usd)


class Refusal(msgspec.Struct, frozen=True):
    """Why a trial may not start: now, or, when it is `final`, never."""

    reason: str
    kind: ExclusionKind
    final: bool = True


class GateState(msgspec.Struct, omit_defaults=True):
    """The limits of a batch and what has been spent and reserved so far.

    `costs` are the known costs of ended trials by profile; `priced` counts ended trials whose cost is unknown and was
    taken to be the likely cost. `free` are profiles whose agent calls no model, or one that costs nothing: no budget
    holds them. `shut` says why nothing starts any more. `lanes` are the models under pressure. Its times are those of
    its `clock`. `shared` is what the gate is called whose batches it stands for together.
    """

    budget_usd: float | None = None
    deadline: float | None = None
    guess_usd: float = GUESS_USD
    spent_usd: float = 0.0
    reserved: dict[str, float] = {}
    costs: dict[str, Known] = {}
    priced: int = 0
    free: list[str] = []
    shut: Refusal | None = None
    seed: int = 0
    lanes: dict[str, Lane] = {}
    clock: SharedClock = msgspec.field(default_factory=SharedClock.here)
    shared: str | None = None

    def likely_usd(self, profile: str) -> float:
        """What a trial of a profile will probably cost: the mean of its own trials, else of all, else the guess."""
        if profile in self.free:
            return 0.0
        known = [self.costs[profile]] if profile in self.costs else list(self.costs.values())  # no free ones in it
        trials = sum(own.trials for own in known)
        return sum(own.usd for own in known) / trials if trials else self.guess_usd

    def refusal(self, profile: str, now: float) -> Refusal | None:
        """Why a trial of this profile may not start, or None when it may."""
        closed = self.why_closed(profile, now)
        if closed is not None or profile in self.free or self._fits(profile):
            return closed
        said = f"running trials hold the rest of {self._budget}"
        return Refusal(said, ExclusionKind.BUDGET, final=False)

    @property
    def _budget(self) -> str:
        shared = f" of the shared gate {self.shared}" if self.shared else ""
        return f"the budget of {dollars(self.budget_usd)}{shared}"

    def _fits(self, profile: str) -> bool:
        """Whether the budget has room for one more beside those that run. The first one always fits."""
        committed = self.spent_usd + sum(self.reserved.values())
        return self.budget_usd is None or committed == 0 or committed + self.likely_usd(profile) <= self.budget_usd

    def why_closed(self, profile: str, now: float) -> Refusal | None:
        """Why no trial of this profile starts any more, or None while one may, now or when running ones have ended."""
        if self.deadline is not None and now >= self.deadline:
            whose = f"of the shared gate {self.shared}" if self.shared else "(run.run_timeout_sec)"
            return self.shut or Refusal(f"the deadline {whose} has passed", ExclusionKind.DEADLINE)
        if profile in self.free:
            return None
        if self.shut is not None:
            return self.shut
        if self.budget_usd is None or self._fits(profile):
            return None
        left = self.budget_usd - self.spent_usd
        if left > 0 and sum(self.reserved.values()) > 0:
            return None
        more = f"; another trial probably costs {dollars(self.likely_usd(profile))}" if left > 0 else ""
        said = f"{self._budget} is used up ({dollars(self.spent_usd)} spent{more})"
        return Refusal(said, ExclusionKind.BUDGET)

    def why_shut(self, profile: str, now: float) -> Refusal | None:
        """Why nothing of this profile starts any more, for good."""
        passed = self.deadline is not None and now >= self.deadline
        return self.shut if passed or profile not in self.free else None

    def let_in_at(self, trial: str, lane: str) -> float:
        """When the rate limit of its lane lets a trial start; each has a moment of its own."""
        found = self.lanes.get(lane, Lane())
        return start_at(found, draw(self.seed, lane, found.level, trial))


class Share(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one batch has spent and reserved of shared limits, and the costs that are known."""

    spent_usd: float = 0.0
    reserved_usd: float = 0.0
    known: Known = Known()

    @classmethod
    def of(cls, state: GateState) -> "Share":
        """That of a batch with this state."""
        known = list(state.costs.values())
        known_together = Known(sum(own.trials for own in known), sum(own.usd for own in known))
        return cls(state.spent_usd, sum(state.reserved.values()), known_together)


class SharedState(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The limits that several batches share, their shares by the folder of the batch, and the models under pressure.

    A person may write it, and change its budget while batches run. `shut_at_usd` was the budget when it was shut.
    """

    budget_usd: Annotated[float, msgspec.Meta(ge=0)] | None = None
    deadline: float | None = None
    shut: Refusal | None = None
    shut_at_usd: float | None = None
    lanes: dict[str, Lane] = {}
    clock: SharedClock = msgspec.field(default_factory=SharedClock.here)
    batches: dict[str, Share] = {}

    @property
    def closed(self) -> Refusal | None:
        """Why nothing starts any more. A budget that is another one than `shut_at_usd` has opened the gate again."""
        by_budget = self.shut is not None and self.shut.kind is ExclusionKind.BUDGET
        return None if by_budget and self.shut_at_usd != self.budget_usd else self.shut

    def close(self, refusal: Refusal) -> None:
        """Nothing starts any more, until a person changes the budget or a further batch joins."""
        self.shut, self.shut_at_usd = refusal, self.budget_usd

    def seen_by(self, batch: str, own: GateState, runs: Callable[[str], bool]) -> GateState:
        """All batches together as one state, for a trial of one of them.

        What a batch has reserved that does not run any more, as `runs` says, comes back to no budget: it counts as
        spent.
        """
        shares = {**self.batches, batch: Share.of(own)}
        reserved = {name: share.reserved_usd for name, share in shares.items() if name == batch or runs(name)}
        committed = sum(share.spent_usd + share.reserved_usd for share in shares.values())
        others = {name: share.known for name, share in shares.items() if name != batch and share.known.trials}
        return msgspec.structs.replace(
            own,
            budget_usd=self.budget_usd,
            deadline=self.deadline,
            shut=self.closed,
            spent_usd=committed - sum(reserved.values()),
            reserved=reserved,
            costs={**others, **own.costs},
        )
