"""What holds a batch back beside its own plan: its gate, and the gate and orders that it shares with other batches."""

from dataclasses import dataclass, field
from pathlib import Path

from terminalbench.harbor.limits.control import ALL, Control, ControlFile, shared_control
from terminalbench.harbor.limits.gate import Gate, GateState, Refusal, read_shared
from terminalbench.text.numbers import dollars, plural


@dataclass(frozen=True)
class SharedLimits:
    """A gate that several batches share: the file, what all of them have spent of what they may, and their orders."""

    file: Path
    batches: int
    spent_usd: float
    budget_usd: float | None
    shut: Refusal | None
    orders: Control

    @property
    def spend(self) -> str:
        """What all batches have spent, and of how much."""
        return dollars(self.spent_usd) + (f" of {dollars(self.budget_usd)}" if self.budget_usd is not None else "")

    @property
    def line(self) -> str:
        """It in one line."""
        by = f"{self.spend} spent by {plural(self.batches, 'batch', 'batches')}"
        shut = [f"nothing new starts: {self.shut.reason}"] if self.shut is not None else []
        return f"shared gate {self.file.name}: {'; '.join([by, *shut, *_order_lines(self.orders)])}"


@dataclass(frozen=True)
class Limits:
    """The gate of a batch, with the tighter of the two deadlines, and the gate it shares, if it does."""

    own: GateState = field(default_factory=GateState)
    shared: SharedLimits | None = None

    @property
    def shut(self) -> Refusal | None:
        """Why nothing starts any more in this batch, while others of a shared gate may go on."""
        return None if self.shared is not None and self.shared.shut is not None else self.own.shut

    @property
    def spend(self) -> str:
        """What the batch has spent of its own budget; "" when it has none."""
        guessed = f" ({self.own.priced} guessed)" if self.own.priced else ""
        known = f"{dollars(self.own.spent_usd)}{guessed} of {dollars(self.own.budget_usd)}"
        return known if self.own.budget_usd is not None else ""

    @property
    def deadline_sec(self) -> float | None:
        """The time left until the deadline."""
        return None if self.own.deadline is None else self.own.deadline - self.own.clock.now()


def read_limits(gate: Gate) -> Limits:
    """The limits as they are now."""
    own = gate.read()
    if gate.shared is None:
        return Limits(own)
    shared = read_shared(gate.shared)
    together = gate.all_batches(own, shared)
    orders = ControlFile(shared_control(gate.shared)).read()
    numbers = (len(shared.batches), together.spent_usd, shared.budget_usd)
    return Limits(own, SharedLimits(gate.shared, *numbers, shared.shut, orders))


def _order_lines(orders: Control) -> list[str]:
    found = [("paused", orders.paused), ("stopped", orders.stopped)]
    told = [f"{_whom(profile)}{word}: {reason}" for word, given in found for profile, reason in given.items()]
    return told + [f"{_whom(profile)}{plural(n, 'trial')} at once" for profile, n in orders.parallel.items()]


def _whom(profile: str) -> str:
    return "" if profile == ALL else f"{profile} "
