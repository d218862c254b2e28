"""The gate every trial of a batch passes before it starts: closed at a deadline, or when the budget is used up.

The gate is a file that all Harbor processes of a batch share, each change made under a lock. A trial reserves its
likely cost before it starts and settles its real cost when it ends, so that trials side by side cannot spend the
same money. A closed gate lets running trials finish; the others are held and never start.
"""

import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from terminalbench.files import write_json

GUESS_USD = 1.0
"""What a trial is taken to cost while nothing is known about its profile."""


class GateState(msgspec.Struct, omit_defaults=True):
    """The limits of a batch and what has been spent and reserved so far.

    `costs` are the known costs of ended trials by profile; `priced` counts ended trials whose cost is unknown and was
    taken to be the likely cost. `closed` says why nothing starts any more. `deadline` is on the clock that only goes
    forward (`time.monotonic`), which all processes of a machine share: setting the time neither ends nor extends a run.
    """

    budget_usd: float | None = None
    deadline: float | None = None
    guess_usd: float = GUESS_USD
    spent_usd: float = 0.0
    reserved: dict[str, float] = {}
    costs: dict[str, list[float]] = {}
    priced: int = 0
    closed: str | None = None

    def likely_usd(self, profile: str) -> float:
        """What a trial of a profile will probably cost: the mean of its own trials, else of all, else the guess."""
        own = self.costs.get(profile) or [cost for costs in self.costs.values() for cost in costs]
        return sum(own) / len(own) if own else self.guess_usd

    def why_closed(self, profile: str, now: float) -> str | None:
        """Why a trial of this profile may not start now, or None when it may."""
        if self.closed is not None:
            return self.closed
        if self.deadline is not None and now >= self.deadline:
            return "the deadline (run.run_timeout_sec) has passed"
        if self.budget_usd is None:
            return None
        committed = self.spent_usd + sum(self.reserved.values())
        if committed == 0:
            return None
        if committed + self.likely_usd(profile) <= self.budget_usd:
            return None
        return f"the budget of ${self.budget_usd:.2f} is used up (${self.spent_usd:.2f} spent)"


class Gate:
    """A gate on disk. Every method takes the lock, reads, changes and writes; several processes may call at once."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self, state: GateState) -> None:
        """Put the gate up, replacing an older one."""
        write_json(self.path, state)

    def read(self) -> GateState:
        """The state as it is now."""
        return msgspec.json.decode(self.path.read_bytes(), type=GateState)

    def enter(self, trial: str, profile: str, now: float | None = None) -> str | None:
        """Reserve for a trial that wants to start; or why it may not. The first refusal closes the gate for good."""
        with self._locked() as state:
            reason = state.why_closed(profile, time.monotonic() if now is None else now)
            if reason is None:
                state.reserved = {**state.reserved, trial: state.likely_usd(profile)}
            else:
                state.closed = reason
            return reason

    def leave(self, trial: str, profile: str, cost_usd: float | None) -> None:
        """Settle a trial that has ended, with what it really cost; an unknown cost is taken to be the likely one."""
        with self._locked() as state:
            likely = state.reserved.pop(trial, state.likely_usd(profile))
            if cost_usd is None:
                state.spent_usd += likely
                state.priced += 1
            else:
                state.spent_usd += cost_usd
                state.costs = {**state.costs, profile: [*state.costs.get(profile, []), cost_usd]}

    @contextmanager
    def _locked(self) -> Generator[GateState]:
        handle = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            state = self.read()
            yield state
            write_json(self.path, state)
        finally:
            os.close(handle)
