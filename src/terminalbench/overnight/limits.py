"""The gate of a night (what its batches may spend together, until when, orders to them), and its stop conditions."""

import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

import msgspec

from terminalbench.experiments.batch import Batch
from terminalbench.harbor.limits.budget import GateState
from terminalbench.harbor.limits.clock import SharedClock
from terminalbench.harbor.limits.control import ALL, ControlFile, shared_control
from terminalbench.harbor.limits.gate import change_shared, gate_of, read_shared, share_gate
from terminalbench.index.queries import BatchView
from terminalbench.overnight.decisions import deadline_of
from terminalbench.overnight.night import NightConfig, NightState
from terminalbench.text.numbers import duration

_MOVED_SEC = 2.0
"""By so much the wall clock may run away from the night's own before `--until` is looked up again."""


@dataclass(frozen=True)
class GateStatus:
    """How the gate stands: what was spent, why nothing may start any more, and whether something only waits."""

    spent_usd: float
    unknown: int
    deadline: float | None = None
    shut: str | None = None
    waits: bool = False


class StopCondition(Protocol):
    """A reason to begin no iteration any more: what runs may end, and the night is `stopped` and can be resumed."""

    def why(self, state: NightState, gate: GateStatus, /) -> str | None:
        """Return the reason as the report states it; None while the night may go on. Asked once a round."""


class ClosedBatch:
    """A worker ended because its batch may start nothing any more."""

    def why(self, state: NightState, _gate: GateStatus, /) -> str | None:
        """Return what the worker said."""
        return state.stopped


class ShutGate:
    """The deadline has come, the budget is used up, or a person has stopped the batches of the night."""

    def why(self, _state: NightState, gate: GateStatus, /) -> str | None:
        """Return what the gate says."""
        return gate.shut


STOP_CONDITIONS: tuple[StopCondition, ...] = (ClosedBatch(), ShutGate())
"""The conditions of every night; the first that holds gives the reason."""


def why_stopped(state: NightState, gate: GateStatus) -> str | None:
    """Return why a night begins no iteration any more, None while it does."""
    return next((why for one in STOP_CONDITIONS if (why := one.why(state, gate)) is not None), None)


def until_of(config: NightConfig) -> float | None:
    """The moment of `--until` by the wall clock."""
    return datetime.fromisoformat(config.until).timestamp() if config.until is not None else None


def clock_of(gate: Path) -> SharedClock:
    """The clock of the gate, which is that of its night."""
    return read_shared(gate).clock


def put_up(gate: Path, config: NightConfig) -> None:
    """Put up the gate of a new night."""
    until = until_of(config)
    share_gate(gate, config.budget_usd, None if until is None else until - time.time())


def renew(gate: Path, config: NightConfig) -> None:
    """Bring the gate of a night that goes on to what it allows now."""
    state = read_shared(gate)
    change_shared(gate, config.budget_usd, deadline_of(until_of(config), time.time(), state.clock.now()))


def follow(gate: Path, until: float | None) -> str | None:
    """Move the deadline where the wall clock was set, or the machine has slept; in words, if so.

    The deadline is kept by the gate's own clock, and `--until` is a moment of the wall clock.
    """
    state = read_shared(gate)
    now = state.clock.now()
    wanted = deadline_of(until, time.time(), now)
    if wanted is None or state.deadline is None or abs(wanted - state.deadline) < _MOVED_SEC:
        return None
    change_shared(gate, state.budget_usd, wanted)
    moved = wanted - state.deadline
    how = "back" if moved > 0 else "forward"
    left = duration(max(0.0, wanted - now))
    return f"the wall clock went {how} by {duration(abs(moved))}; --until is {left} away"


def of_night(reason: str, gate: str) -> str:
    """Why nothing starts, as a person says it who has a night and never named its gate."""
    return reason.replace(f"of the shared gate {gate}", "of the night")


def standing(gate: Path) -> GateStatus:
    """How the gate stands now. Raises as reading files does, while somebody writes one of them."""
    shared = read_shared(gate)
    now = shared.clock.now()
    together = shared.seen_by("", GateState(clock=shared.clock), lambda _name: True)
    together = msgspec.structs.replace(together, shared=gate.name)
    refusal = together.why_shut(now)
    told = ControlFile(shared_control(gate)).read()
    shut = of_night(refusal.reason, gate.name) if refusal is not None else told.why_stopped(ALL)
    pressed = any(lane.level for lane in shared.lanes.values())
    return GateStatus(together.known_usd, together.unknown, shared.deadline, shut, waits=bool(told.paused) or pressed)


def refusals(batch: Batch, view: BatchView) -> list[str | None]:
    """Why the gate that a batch shares lets no trial of a profile start any more, for each; empty without a gate."""
    gate = gate_of(batch, view.plan)
    if gate.shared is None or not batch.gate_json.exists():
        return []
    shared = read_shared(gate.shared)
    seen, now = gate.all_batches(gate.read(), shared), shared.clock.now()
    found = [seen.why_closed(job.profile, now) for job in view.plan.jobs]
    return [of_night(refusal.reason, gate.shared.name) if refusal is not None else None for refusal in found]
