"""A campaign, which is a night, a training or a SWE-Bench Pro experiment: its folder, batches, reports and gate.

The folder is held by one process and gone on with as it was begun; reports are written again while it runs. The gate
says what its batches may spend together, until when, and holds the orders to all of them.

Its batches are ordinary ones, found again by the labels of their plans, whoever started them.
"""

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec

from terminalbench.errors import EXIT_USAGE, TbenchError, UserError
from terminalbench.experiments.batch import Batch
from terminalbench.harbor.limits.budget import GateState
from terminalbench.harbor.limits.control import ALL, ControlFile, shared_control
from terminalbench.harbor.limits.gate import change_shared, gate_of, read_shared
from terminalbench.index.places import find_batches
from terminalbench.index.queries import BatchView
from terminalbench.json_files import read_json
from terminalbench.locks import LockHeld, lock
from terminalbench.text.numbers import duration, plural

_DIFFERENCES = 12
_PAUSES = 20
"""Reports are written at most so small a part of the time: a twentieth."""


@contextmanager
def held(file: Path, what: str, folder: Path, hint: str) -> Generator[None]:
    """Hold the lock of a campaign; where another process has it, nothing is started, and `hint` is the next step."""
    try:
        with lock(file, what):
            yield
    except LockHeld as error:
        error.where, error.hint, error.exit_code = str(folder), hint, EXIT_USAGE
        raise


def refuse_differences(found: Sequence[str], folder: Path, hint: str) -> None:
    """Raise UserError with what is asked for otherwise than when the campaign was begun, if anything."""
    if not found:
        return
    more = [f"and {plural(len(found) - _DIFFERENCES, 'more difference')}"] if len(found) > _DIFFERENCES else []
    listed = "\n  ".join([*found[:_DIFFERENCES], *more])
    raise UserError(f"was begun with other options:\n  {listed}", where=str(folder), hint=hint)


@dataclass
class LiveReports:
    """Reports of a campaign that runs: written by `tick` when they are `due`, at most a twentieth of the time."""

    write: Callable[[], object]
    least_sec: float
    due: bool = False
    _next: float = 0.0

    def tick(self) -> None:
        """Write them, if something was measured since the last time and that is long enough ago."""
        began = time.monotonic()
        if not self.due or began < self._next:
            return
        self.due = False
        self.write()
        now = time.monotonic()
        self._next = now + max(self.least_sec, _PAUSES * (now - began))


class _PlanLabels(msgspec.Struct):
    """Of a plan only its labels: there are many plans, and they are long."""

    labels: dict[str, str] = {}


@lru_cache(maxsize=8192)
def _labels(plan: Path, _written: int) -> dict[str, str]:
    return read_json(plan, _PlanLabels).labels


def labels_of(batch: Batch) -> dict[str, str]:
    """Return the labels of a batch; none of one that is not there, or cannot be read."""
    try:
        return _labels(batch.plan_json, batch.plan_json.stat().st_mtime_ns)
    except (OSError, TbenchError):
        return {}


def batches_below(results_root: Path) -> list[Batch]:
    """Return the batches with a plan in a results folder, by slug and number."""
    if not results_root.is_dir():
        return []
    found = [batch for batch in find_batches(results_root) if batch.plan_json.is_file()]
    return sorted(found, key=lambda batch: (batch.folder.parent.name, batch.number))


def find_labelled(batches: Iterable[Batch], wanted: dict[str, str]) -> Batch | None:
    """Return the first batch that has all of these labels."""
    return next((batch for batch in batches if wanted.items() <= labels_of(batch).items()), None)


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
