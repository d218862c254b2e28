"""The gate of a campaign: what its batches may spend together, until when, and orders to all of them.

`until` is a moment of the wall clock; the deadline is kept by the gate's own clock.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from terminalbench.experiments.batch import Batch
from terminalbench.harbor.limits.budget import GateState
from terminalbench.harbor.limits.control import ALL, ControlFile, shared_control
from terminalbench.harbor.limits.gate import change_shared, gate_of, read_shared
from terminalbench.index.queries import BatchView
from terminalbench.text.numbers import duration

_MOVED_SEC = 2.0
"""By so much the wall clock may run away from the gate's own before `until` is looked up again."""


@dataclass(frozen=True)
class GateStatus:
    """How the gate stands: what was spent, why nothing may start any more, and whether something only waits."""

    spent_usd: float
    unknown: int
    deadline: float | None = None
    shut: str | None = None
    waits: bool = False


def deadline_of(until: float | None, wall: float, now: float) -> float | None:
    """Return when `until`, a moment of the `wall` clock, comes by the gate's own clock, which no jump moves.

    A wall clock that is set forward brings the end nearer, one that is set back moves it away: at seven is seven on
    the clock that people look at. Nothing else goes by it.
    """
    return None if until is None else now + (until - wall)


def follow(gate: Path, until: float | None) -> str | None:
    """Move the deadline where the wall clock was set, or the machine has slept; in words, if so."""
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


def standing(gate: Path) -> GateStatus:
    """Return how the gate stands now. Raises as reading files does, while somebody writes one of them."""
    shared = read_shared(gate)
    together = shared.seen_by("", GateState(clock=shared.clock), lambda _name: True)
    together = msgspec.structs.replace(together, shared=shared.name(gate))
    refusal = together.why_shut(shared.clock.now())
    told = ControlFile(shared_control(gate)).read()
    shut = refusal.reason if refusal is not None else told.why_stopped(ALL)
    pressed = any(lane.level for lane in shared.lanes.values())
    return GateStatus(together.known_usd, together.unknown, shared.deadline, shut, waits=bool(told.paused) or pressed)


def refusals(batch: Batch, view: BatchView) -> list[str | None]:
    """Return why the gate that a batch shares lets nothing of a profile start any more, for each; empty without one."""
    gate = gate_of(batch, view.plan)
    if gate.shared is None or not batch.gate_json.exists():
        return []
    shared = read_shared(gate.shared)
    seen, now = gate.all_batches(gate.read(), shared), shared.clock.now()
    found = [seen.why_closed(job.profile, now) for job in view.plan.jobs]
    return [refusal.reason if refusal is not None else None for refusal in found]
