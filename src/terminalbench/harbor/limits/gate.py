"""The gate every trial of a batch passes before it starts: closed at a deadline, or for profiles without money left.

A trial holds its likely cost from its start to its end and then settles its real cost, so that trials side by side
cannot spend the same money. A closed gate lets running trials finish. docs/design/running.md says why it is a file.
"""

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from terminalbench.decode import NOT_DECODED, convert, decode
from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import Plan
from terminalbench.harbor.limits.budget import (
    Account,
    BatchShare,
    GateState,
    KnownCost,
    SharedState,
    TrialRefusal,
    Turn,
)
from terminalbench.harbor.limits.control import ControlFile, shared_control
from terminalbench.harbor.limits.pacing import Lane, eased, pressed
from terminalbench.json_files import write_json
from terminalbench.locks import changing, living_owner

_LOCK = ".lock"
_OF_EARLIER_VERSIONS = ("shut", "shut_at_usd")
"""Fields of a shared gate that are not kept any more: who may start is found out from the accounts."""


def gate_of(batch: Batch, plan: Plan | None) -> "Gate":
    """The gate of a batch, with the one it shares, if it does: the one place that knows where they are."""
    return Gate(batch.gate_json, Path(plan.gate) if plan is not None and plan.gate else None)


def control_of(batch: Batch, plan: Plan) -> ControlFile:
    """The orders of a batch, with those of the gate it shares, if it does."""
    return ControlFile(batch.control_json, gate_of(batch, plan).shared)


class GateError(UserError):
    """A shared gate lets nothing start: it is shut, everything was cancelled, or it cannot be read."""


def share_gate(
    path: Path, budget_usd: float | None = None, run_timeout_sec: float | None = None, called: str | None = None
) -> None:
    """Put up a gate for several batches: what they may spend together, and for how long from now on."""
    state = SharedState(budget_usd=budget_usd, called=called)
    if run_timeout_sec is not None:
        state.deadline = state.clock.now() + run_timeout_sec
    with changing(path):
        write_json(path, state)
    shared_control(path).unlink(missing_ok=True)


def change_shared(path: Path, budget_usd: float | None, deadline: float | None) -> None:
    """Set what the batches of a shared gate may spend, and until when by its clock; all else stays as it is."""
    with changing(path):
        state = _shared_state(path)
        state.budget_usd, state.deadline = budget_usd, deadline
        write_json(path, state)


def change_account(path: Path, payer: str, change: Callable[[Account], Account]) -> None:
    """Change what one that is no batch holds and has spent of a shared gate, as a model that reflects on a night."""
    with changing(path):
        state = _shared_state(path)
        known = state.batches.get(payer, BatchShare()).accounts.get("", Account(Turn.OVER))
        state.batches = {**state.batches, payer: BatchShare({"": change(known)})}
        write_json(path, state)


def read_shared(path: Path) -> SharedState:
    """The state of a shared gate; a file that is missing sets no limits. Raises a `UserError` when it is none."""
    if not path.absolute().parent.is_dir():
        hint = "create it first, or name another file"
        raise GateError("the folder of this shared gate does not exist", where=str(path), hint=hint)
    if path.suffix == _LOCK or (path.exists() and not path.is_file()):  # a pipe would be waited for, for ever
        what = "it is a folder" if path.is_dir() else "it is not a plain file"
        what = f"names that end in {_LOCK} are reserved for locks" if path.suffix == _LOCK else what
        raise GateError(f"is not a shared gate: {what}", where=str(path), hint="name a file, such as night.json")
    try:
        return _shared_state(path)
    except OSError as error:
        raise GateError(f"is not a shared gate: it cannot be read: {error.strerror}", where=str(path)) from error
    except NOT_DECODED as error:
        hint = 'a shared gate is JSON such as {"budget_usd": 20.0}; correct it, or name another file'
        raise GateError(f"is not a shared gate: {error}", where=str(path), hint=hint) from error


def _shared_state(path: Path) -> SharedState:
    """The same for a run, which lives with a file that cannot be read for a moment."""
    try:
        found = decode(path.read_bytes())
    except FileNotFoundError:
        return SharedState()
    if isinstance(found, dict):
        found = {name: value for name, value in found.items() if name not in _OF_EARLIER_VERSIONS}
    return convert(found, SharedState)


class _EarlierState(msgspec.Struct):
    """The gate of a batch in files from before each profile had an account."""

    costs: dict[str, KnownCost] = {}
    priced: int = 0

    def accounts(self) -> dict[str, Account]:
        unknown = {"": Account(Turn.OVER, unknown=self.priced)} if self.priced else {}
        return {**{key: Account(Turn.OVER, known=known) for key, known in self.costs.items()}, **unknown}


@dataclass
class _Open:
    """The states of a gate while they are changed."""

    own: GateState
    shared: SharedState | None

    @property
    def pressed(self) -> GateState | SharedState:
        """Whose rate limits count."""
        return self.own if self.shared is None else self.shared


class Gate:
    """A gate on disk. Every method takes the lock, reads, changes and writes; several processes may call at once."""

    def __init__(self, path: Path, shared: Path | None = None) -> None:
        self.path = path
        self.shared = shared
        self._name = str(path.parent)

    def create(self, state: GateState) -> None:
        """Put the gate up, replacing an older one; in a shared gate what it says replaces what it said before."""
        if self.shared is None:
            write_json(self.path, state)
            return
        with changing(self.shared):
            shared = _shared_state(self.shared)
            if state.deadline is not None:  # the batch's own deadline, by the clock that is shared
                state.deadline += shared.clock.now() - state.clock.now()
            state.clock = shared.clock
            if self._name in shared.batches and not self.path.exists():  # a batch that was deleted had its name
                gone = f"{self._name} (deleted {sum(name.startswith(self._name) for name in shared.batches)})"
                shared.batches = {**shared.batches, gone: shared.batches[self._name]}
            shared.batches = {**shared.batches, self._name: BatchShare(state.accounts)}
            write_json(self.path, state)
            write_json(self.shared, shared)

    def read(self) -> GateState:
        """The state as it is now; the limits that are shared count too, where they are tighter."""
        state = self._own()
        if self.shared is None:
            return state
        shared = _shared_state(self.shared)
        deadlines = [moment for moment in (state.deadline, shared.deadline) if moment is not None]
        return msgspec.structs.replace(state, lanes=shared.lanes, deadline=min(deadlines, default=None))

    def _own(self) -> GateState:
        text = self.path.read_bytes()
        state = decode(text, GateState)
        if not state.accounts and b'"accounts"' not in text:
            state.accounts = decode(text, _EarlierState).accounts()
        return state

    @property
    def _limited(self) -> bool:
        """True when accounts are kept: something limits what is spent, or may begin to."""
        return self.shared is not None or self._own().budget_usd is not None

    def _states(self, own: GateState, shared: SharedState | None) -> list[GateState]:
        """The states that have to let a trial in: that of the batch, and that of all batches together."""
        return [own] if shared is None else [own, self.all_batches(own, shared)]

    def refusal(self, profile: str, now: float | None = None) -> TrialRefusal | None:
        """Return why a trial of a profile may not start now, by this gate and by the shared one; None when it may."""
        own = self._own()
        moment = own.clock.now() if now is None else now
        states = self._states(own, None if self.shared is None else _shared_state(self.shared))
        return next((found for state in states if (found := state.refusal(profile, moment)) is not None), None)

    def why_closed(self, profile: str) -> TrialRefusal | None:
        """Return why nothing of a profile starts any more, or None while something may, now or later."""
        refusal = self.refusal(profile)
        return refusal if refusal is not None and refusal.final else None

    def enter(self, trial: str, profile: str, now: float | None = None) -> TrialRefusal | None:
        """Hold the likely cost of a trial that wants to start; or why it may not."""
        refusal = self.refusal(profile, now)
        if (refusal is None and not self._limited) or (refusal is not None and not refusal.final):
            return refusal  # nothing to hold, or nothing to change
        with self._locked() as found:
            own = found.own
            states = self._states(own, found.shared)
            moment = own.clock.now() if now is None else now
            refusal = next((said for state in states if (said := state.refusal(profile, moment)) is not None), None)
            if profile in own.free:
                return refusal
            account = own.account(profile)
            if refusal is None:
                own.change(profile, account.entered(trial, min(state.hold_usd(profile) for state in states)))
            elif refusal.final:
                own.change(profile, msgspec.structs.replace(account, closed=refusal))
            return refusal

    def all_batches(self, own: GateState, shared: SharedState) -> GateState:
        """All batches of the shared gate as one state, as this batch sees it."""
        seen = shared.seen_by(self._name, own, lambda name: living_owner(Batch(Path(name)).lock) is not None)
        seen.shared = shared.name(self.shared) if self.shared is not None else None
        return seen

    def why_none(self, own: GateState, profiles: Iterable[str]) -> TrialRefusal | None:
        """Return why no trial of these profiles could start if the batch joined its shared gate now; else None."""
        if self.shared is None:
            return None
        shared = read_shared(self.shared)
        seen, now = self.all_batches(own, shared), shared.clock.now()
        refusals = [seen.why_closed(profile, now) for profile in profiles]
        return refusals[0] if refusals and None not in refusals else None

    def begin(self, profile: str, trials: int, *, more: bool = False) -> None:
        """The trials of a profile may ask from now on; so many of them are to start, or so many `more`."""
        before = self._own().account(profile).to_start if more and self._limited else 0
        self._change(profile, turn=Turn.NOW, to_start=before + trials, closed=None)

    def through(self, profile: str) -> None:
        """No trial of a profile asks any more: what it does not use of its share is the others'."""
        self._change(profile, turn=Turn.OVER)

    def _change(self, profile: str, **fields: object) -> None:
        if not self._limited:
            return
        with self._locked() as found:
            if profile not in found.own.free:
                found.own.change(profile, msgspec.structs.replace(found.own.account(profile), **fields))

    def leave(
        self, trial: str, profile: str, cost_usd: float | None, *, measured: bool = True, again: bool = False
    ) -> None:
        """Settle a try that has ended, with what it really cost; None: nobody knows.

        `measured` when it has a verdict, `again` when the trial is tried once more.
        """
        if not self._limited:
            return
        with self._locked() as found:
            if profile not in found.own.free:  # what costs nothing says nothing about the others
                account = found.own.account(profile)
                found.own.change(profile, account.settled(trial, cost_usd, measured=measured, again=again))

    def give_back(self, trial: str, profile: str) -> None:
        """Give back what is held for a trial that was let in and never began."""
        if trial in self._own().account(profile).running:
            with self._locked() as found:
                found.own.change(profile, found.own.account(profile).without(trial))

    def settle_dead(self, job_folder: Path, profile: str, alive: Iterable[Path] = ()) -> None:
        """Settle what a Harbor that is gone held for the trials in its folder: their cost is unknown.

        `alive` are the folders of other jobs of the profile, which run.
        """
        others = tuple(alive)
        for trial in list(self._own().account(profile).running):
            if (job_folder / trial).is_dir():
                self.leave(trial, profile, None, measured=False)
            elif not any((folder / trial).is_dir() for folder in others):
                self.give_back(trial, profile)

    def press(self, lane: str, *, started_at: float, asked_sec: float | None, now: float | None = None) -> Lane:
        """A trial was rate limited: the others of its lane wait. Returns the lane as it is now."""
        with self._locked() as found:
            state = found.pressed
            moment = state.clock.now() if now is None else now
            raised = pressed(state.lanes.get(lane, Lane()), started_at=started_at, now=moment, asked_sec=asked_sec)
            state.lanes = {**state.lanes, lane: raised}
            return raised

    def ease(self, lane: str, *, started_at: float) -> None:
        """A trial was let through by its provider: nobody waits any more, except for what was asked for."""
        if lane not in self.read().lanes:
            return
        with self._locked() as found:
            state = found.pressed
            if lane in state.lanes:
                state.lanes = {**state.lanes, lane: eased(state.lanes[lane], started_at=started_at)}

    @contextmanager
    def _locked(self) -> Generator[_Open]:
        if self.shared is None:
            with changing(self.path):
                found = _Open(self._own(), None)
                yield found
                write_json(self.path, found.own)
            return
        with changing(self.shared), changing(self.path):
            shared = _shared_state(self.shared)
            found = _Open(self._own(), shared)
            yield found
            write_json(self.path, found.own)
            shared.batches = {**shared.batches, self._name: BatchShare(found.own.accounts)}
            write_json(self.shared, shared)
