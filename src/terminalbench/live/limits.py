"""Limits of a batch beside its own plan: its gate, and the gate and orders that it shares with other batches."""

from dataclasses import dataclass, field
from pathlib import Path

from terminalbench.experiments.plan import ExclusionKind
from terminalbench.harbor.limits.accounts import Account, TrialRefusal
from terminalbench.harbor.limits.budget import GateState
from terminalbench.harbor.limits.control import ALL, Control, ControlFile, shared_control
from terminalbench.harbor.limits.gate import Gate, read_shared
from terminalbench.text.numbers import cost, dollars, plural


@dataclass(frozen=True)
class GateLimits:
    """`own` is the gate of the batch, with the tighter deadline where it shares another gate.

    `together` are the `batches` of that other gate as one, `orders` what was told to all of them, `told` what is in
    force for this batch.
    """

    own: GateState = field(default_factory=GateState)
    together: GateState | None = None
    batches: int = 0
    orders: Control = field(default_factory=Control)
    told: Control = field(default_factory=Control)

    @property
    def shut(self) -> TrialRefusal | None:
        """Return why nothing starts any more in this batch, while others of a shared gate may go on."""
        return None if self.shared_shut is not None else self.own.why_shut(self.own.clock.now())

    @property
    def shared_shut(self) -> TrialRefusal | None:
        """Return why nothing starts any more in all batches of a shared gate."""
        return None if self.together is None else self.together.why_shut(self.together.clock.now())

    @property
    def over(self) -> list[str]:
        """Return by how much known costs pass the budget of the batch, and that of a shared gate; empty when they do
        not."""
        states = (state for state in (self.own, self.together) if state is not None)
        return [said for state in states if (said := state.over_said) is not None]

    def one_by_one(self, profile: str) -> Account | None:
        """The account of a profile whose trials start one at a time, as no cost is known; None when they need not."""
        limited = any(state.budget_usd is not None for state in (self.own, self.together) if state is not None)
        account = self.own.accounts.get(profile)
        return account if limited and account is not None and account.price_usd is None else None

    def affords(self, profile: str) -> int | None:
        """Return how many more trials of a profile the budgets have room for; None: not limited, or not known."""
        found = [state.affords(profile) for state in (self.own, self.together) if state is not None]
        return min((number for number in found if number is not None), default=None)

    @property
    def deadline_sec(self) -> float | None:
        """The time left until the deadline."""
        return None if self.own.deadline is None else self.own.deadline - self.own.clock.now()

    @property
    def spend(self) -> str:
        """Return what was spent of the batch's own budget; "" when it has none."""
        return _spend(self.own) if self.own.budget_usd is not None else ""

    @property
    def shared_spend(self) -> str:
        """Return what all batches have spent of a budget that they share; "" when there is none."""
        found = self.together
        return f"shared: {_spend(found)}" if found is not None and found.budget_usd is not None else ""

    @property
    def shared_lines(self) -> list[str]:
        """The shared gate in one line; nothing without one."""
        if self.together is None:
            return []
        parts = [f"{_spend(self.together)} spent by {plural(self.batches, 'batch', 'batches')}"]
        if (shut := self.shared_shut) is not None:
            used_up = shut.kind is ExclusionKind.BUDGET
            parts.append(f"nothing new starts: {'the budget is used up' if used_up else shut.reason}")
        for word, given in (("paused", self.orders.paused), ("stopped", self.orders.stopped)):
            parts += [f"{_whom(profile)}{word}: {reason}" for profile, reason in given.items()]
        parts += [f"{_whom(profile)}{plural(n, 'trial')} at once" for profile, n in self.orders.parallel.items()]
        return [f"{self.together.shared}: {'; '.join(parts)}"]


def read_limits(gate: Gate, control: Path) -> GateLimits:
    """The limits as they are now; `control` is the file with the orders of the batch."""
    own, told = gate.read(), ControlFile(control, gate.shared).read()
    if gate.shared is None:
        return GateLimits(own, told=told)
    shared = read_shared(gate.shared)
    orders = ControlFile(shared_control(gate.shared)).read()
    return GateLimits(own, gate.all_batches(own, shared), len(shared.batches), orders, told)


def _spend(state: GateState) -> str:
    budget = f" of {dollars(state.budget_usd)}" if state.budget_usd is not None else ""
    return f"{cost(state.known_usd, state.unknown)}{budget}"


def _whom(profile: str) -> str:
    return "" if profile == ALL else f"{profile} "
