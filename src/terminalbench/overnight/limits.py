"""The stop conditions of a night, and what its gate allows: budget and deadline of what was asked for."""

import time
from datetime import datetime
from pathlib import Path
from typing import Protocol

from terminalbench.campaign import GateStatus, deadline_of
from terminalbench.harbor.limits.gate import change_shared, read_shared, share_gate
from terminalbench.overnight.night import NightConfig, NightState


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


def put_up(gate: Path, config: NightConfig) -> None:
    """Put up the gate of a new night."""
    until = until_of(config)
    share_gate(gate, config.budget_usd, None if until is None else until - time.time(), called="night")


def renew(gate: Path, config: NightConfig) -> None:
    """Bring the gate of a night that goes on to what it allows now."""
    now = read_shared(gate).clock.now()
    change_shared(gate, config.budget_usd, deadline_of(until_of(config), time.time(), now))
