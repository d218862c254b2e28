"""Whether a trial may start now, and if not, what it waits for. Reads the batch's gate; decides nothing by itself."""

import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from terminalbench.harbor.gate import Gate, GateState
from terminalbench.harbor.pacing import draw, retry_at

POLL_SEC = 1.0


@dataclass(frozen=True)
class Wait:
    """Why a trial does not start yet, and until when, in seconds since the epoch; None: until somebody says so."""

    cause: str
    reason: str
    until: float | None = None

    def detail(self) -> dict[str, Any]:
        """What the event `trial_waiting` says besides the reason."""
        until = None if self.until is None else datetime.fromtimestamp(self.until, UTC)
        return {"cause": self.cause} | ({"until": stamp(until)} if until else {})

    def left_sec(self, now: float) -> float:
        """How long to sleep before looking again."""
        return POLL_SEC if self.until is None else max(0.01, min(POLL_SEC, self.until - now))


def stamp(moment: datetime) -> str:
    """A time as events write it."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Admission:
    """Asks the gate for the trials of one Harbor process, and remembers what they did before."""

    def __init__(self, gate: Gate | None, profile: str) -> None:
        self.gate = gate
        self._profile = profile
        self._entered: dict[str, float] = {}
        self._failed: dict[str, float] = {}
        self._tries: Counter[str] = Counter()

    def why_wait(self, trial: str, lane: str) -> Wait | None:
        """What a trial has to wait for, or None when it may ask to enter."""
        now = time.time()
        try:
            state = self.gate.read() if self.gate is not None else GateState()
        except (OSError, msgspec.DecodeError):
            return None
        if state.why_closed(self._profile, now) is not None:
            return None
        return waiting(state, trial, lane, self._retry_at(state, trial), now)

    def enter(self, trial: str) -> str | None:
        """Let a trial in and note when; or why it may never start."""
        reason = self.gate.enter(trial, self._profile) if self.gate is not None else None
        if reason is None:
            self._entered[trial] = time.time()
            self._tries[trial] += 1
        return reason

    def failed(self, trial: str) -> None:
        """A trial will be tried again."""
        self._failed[trial] = time.time()

    def press(self, trial: str, lane: str, asked_sec: float | None) -> None:
        """A trial was rate limited."""
        if self.gate is not None:
            self.gate.press(lane, started_at=self._entered.get(trial, 0.0), asked_sec=asked_sec)

    def ease(self, trial: str, lane: str) -> None:
        """A trial was let through by its provider."""
        if self.gate is not None:
            self.gate.ease(lane, started_at=self._entered.get(trial, 0.0))

    def _retry_at(self, state: GateState, trial: str) -> float:
        if trial not in self._failed:
            return 0.0
        return retry_at(self._failed[trial], self._tries[trial], draw(state.seed, "retry", trial, self._tries[trial]))


def waiting(state: GateState, trial: str, lane: str, retry_at: float, now: float) -> Wait | None:
    """What an open gate makes a trial wait for: the rate limit of its lane, or the pause before a further try. Pure."""
    let_in_at = state.let_in_at(trial, lane)
    if let_in_at > now and let_in_at >= retry_at:
        return Wait("rate_limit", f"rate limit of {lane}", let_in_at)
    return Wait("retry", "pause before it is tried again", retry_at) if retry_at > now else None
