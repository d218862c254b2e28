"""The gate every trial of a batch passes before it starts: closed at a deadline, or when the budget is used up.

The gate is a file that all Harbor processes of a batch share, each change made under a lock. A trial reserves its
likely cost before it starts and settles its real cost when it ends, so that trials side by side cannot spend the
same money. What does not fit beside the running trials waits for them to end: they may cost less than was reserved.
A closed gate lets running trials finish; the others are held and never start. While a provider limits the
rate of a model, trials of that model wait here, whichever process they belong to.
"""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from terminalbench.experiments.plan import ExclusionKind
from terminalbench.files import write_json
from terminalbench.harbor.limits.clock import SharedClock
from terminalbench.harbor.limits.pacing import Lane, draw, eased, pressed, start_at
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
    taken to be the likely cost. `free` are profiles whose agent calls no model: no budget holds them. `shut` says
    why nothing starts any more. `lanes` are the models under pressure. Its times are those of its `clock`.
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
        said = f"running trials hold the rest of the budget of {dollars(self.budget_usd)}"
        return Refusal(said, ExclusionKind.BUDGET, final=False)

    def _fits(self, profile: str) -> bool:
        """Whether the budget has room for one more beside those that run. The first one always fits."""
        committed = self.spent_usd + sum(self.reserved.values())
        return self.budget_usd is None or committed == 0 or committed + self.likely_usd(profile) <= self.budget_usd

    def why_closed(self, profile: str, now: float) -> Refusal | None:
        """Why no trial of this profile starts any more, or None while one may, now or when running ones have ended."""
        if self.deadline is not None and now >= self.deadline:
            return self.shut or Refusal("the deadline (run.run_timeout_sec) has passed", ExclusionKind.DEADLINE)
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
        said = f"the budget of {dollars(self.budget_usd)} is used up ({dollars(self.spent_usd)} spent{more})"
        return Refusal(said, ExclusionKind.BUDGET)

    def why_shut(self, profile: str, now: float) -> Refusal | None:
        """Why nothing of this profile starts any more, for good."""
        passed = self.deadline is not None and now >= self.deadline
        return self.shut if passed or profile not in self.free else None

    def let_in_at(self, trial: str, lane: str) -> float:
        """When the rate limit of its lane lets a trial start; each has a moment of its own."""
        found = self.lanes.get(lane, Lane())
        return start_at(found, draw(self.seed, lane, found.level, trial))


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

    def enter(self, trial: str, profile: str, now: float | None = None) -> Refusal | None:
        """Reserve for a trial that wants to start; or why it may not. The first final refusal closes the gate."""
        known = self.read()
        moment = known.clock.now() if now is None else now
        refusal = known.refusal(profile, moment)
        if (known.budget_usd is None and refusal is None) or (refusal is not None and not refusal.final):
            return refusal  # nothing to reserve, or nothing to change
        with self._locked() as state:
            refusal = state.refusal(profile, moment)
            if refusal is None:
                state.reserved = {**state.reserved, trial: state.likely_usd(profile)}
            elif refusal.final:
                state.shut = refusal
            return refusal

    def leave(self, trial: str, profile: str, cost_usd: float | None) -> None:
        """Settle a trial that has ended, with what it really cost; an unknown cost is taken to be the likely one."""
        if self.read().budget_usd is None:
            return
        with self._locked() as state:
            likely = state.reserved.pop(trial, state.likely_usd(profile))
            if profile in state.free:
                return  # its nothing would make the others look cheap
            if cost_usd is None:
                state.spent_usd += likely
                state.priced += 1
            else:
                state.spent_usd += cost_usd
                state.costs = {**state.costs, profile: state.costs.get(profile, Known()).and_one(cost_usd)}

    def give_back(self, trial: str) -> None:
        """Nothing is reserved any more for a trial that was let in and never began."""
        if trial in self.read().reserved:
            with self._locked() as state:
                state.reserved.pop(trial, None)

    def settle_dead(self, job_folder: Path, profile: str) -> None:
        """Settle what a Harbor that is gone had reserved for the trials in its folder: their cost is unknown."""
        try:
            for trial in [name for name in self.read().reserved if (job_folder / name).is_dir()]:
                self.leave(trial, profile, None)
        except (OSError, msgspec.DecodeError):
            return  # a full disk: the run is about to end

    def press(self, lane: str, *, started_at: float, asked_sec: float | None, now: float | None = None) -> Lane:
        """A trial was rate limited: the others of its lane wait. Returns the lane as it is now."""
        with self._locked() as state:
            moment = state.clock.now() if now is None else now
            raised = pressed(state.lanes.get(lane, Lane()), started_at=started_at, now=moment, asked_sec=asked_sec)
            state.lanes = {**state.lanes, lane: raised}
            return raised

    def ease(self, lane: str, *, started_at: float) -> None:
        """A trial was let through by its provider: nobody waits any more, except for what was asked for."""
        if lane not in self.read().lanes:
            return
        with self._locked() as state:
            if lane in state.lanes:
                state.lanes = {**state.lanes, lane: eased(state.lanes[lane], started_at=started_at)}

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
