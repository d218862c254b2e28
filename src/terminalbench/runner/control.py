"""Telling a live run what to do: every change is in the batch's control file, and in its events with the reason."""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from terminalbench.errors import UserError, did_you_mean
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import Plan
from terminalbench.harbor.limits.control import ALL, Control, ControlFile, shared_control
from terminalbench.harbor.limits.gate import GateError, read_shared
from terminalbench.json_files import append_jsonl, read_json, read_jsonl
from terminalbench.live.processes import live_processes
from terminalbench.live.state import replay
from terminalbench.records.event import Event, EventKind
from terminalbench.text.names import typed

TRIALS = ("cancel", "requeue")
END_SEC = 90.0
"""How long an order waits for its trials to end: longer than it takes to end one that ignores every cancellation."""
_POLL_SEC = 0.1


@dataclass(frozen=True)
class ControlOrder:
    """One thing to do: `value` is the number of trials at once, for `set`. No targets means every profile."""

    action: str
    targets: tuple[str, ...]
    reason: str
    value: int | None = None


@dataclass(frozen=True)
class IssuedOrder:
    """An order that was given: the profiles and trials that it names, and the trials that it is to end, by batch."""

    targets: list[str]
    trials: list[tuple[Batch, list[str]]]


def give(batch: Batch, order: ControlOrder) -> IssuedOrder:
    """Carry an order to a live run. Raises when it makes no sense."""
    if not _runs(batch):
        raise UserError("is not running", where=str(batch.folder), hint="tbench resume continues it")
    return _give(batch.folder, [batch], ControlFile(batch.control_json), order)


def await_end(given: IssuedOrder) -> Iterator[tuple[str, str | None]]:
    """Each trial of an order as it ends, with its outcome ("not_run" if it did not start); at last those that did not.

    Waits no longer than `END_SEC`, and for those of a batch no longer than its run lasts.
    """
    left = [(batch, dict.fromkeys(trials)) for batch, trials in given.trials]
    deadline = time.monotonic() + END_SEC
    while any(trials for _, trials in left):
        waits = time.monotonic() < deadline and any(trials and _runs(batch) for batch, trials in left)
        for batch, trials in left:
            yield from _ended(batch, trials)
        if not waits:
            break
        time.sleep(_POLL_SEC)
    for _, trials in left:
        yield from trials.items()


def _ended(batch: Batch, left: dict[str, str | None]) -> Iterator[tuple[str, str]]:
    """Those of the trials that have ended; they are no longer `left`."""
    for event in read_jsonl(batch.events_jsonl, Event).records if left else ():
        ended = event.kind in (EventKind.TRIAL_ENDED, EventKind.TRIAL_HELD)  # held: it asked, and is not to start
        done = event.kind == EventKind.CONTROL and event.detail.get("done")
        if event.trial in left and (ended or done):
            del left[event.trial]
            yield event.trial, event.outcome or "not_run"


def give_to_all(gate: Path, order: ControlOrder) -> IssuedOrder:
    """Carry an order to every batch of a shared gate, those that start later included; `cancel` without targets: all.

    Each batch that runs now has it in its events. `resume` is for the batches of tomorrow, too: it takes back what was
    cancelled, also when none runs.
    """
    if not gate.is_file():
        raise UserError(
            "there is no such gate file",
            where=str(gate),
            hint="give the file that the batch was started with: --gate FILE",
        )
    batches = [batch for name in read_shared(gate).batches if _runs(batch := Batch(Path(name)))]
    if not batches and order.action != "resume":
        what = "no batch that shares this gate is running"
        raise UserError(what, where=str(gate), hint="tbench status shows what runs")
    return _give(gate, batches, ControlFile(shared_control(gate)), order)


def check_orders(gate: Path) -> Iterator[str]:
    """Apply earlier orders to all batches of a gate to one that starts now; raises when it would not run."""
    told = _orders_to_all(gate)
    again = f"tbench ctl resume --gate {typed(gate)} --reason TEXT undoes the order"
    if ALL in told.stopped:
        raise GateError(f"all batches of this gate were {told.stopped[ALL]}", where=str(gate), hint=again)
    for orders, how in ((told.stopped, "does not run"), (told.paused, "waits")):
        for profile, reason in orders.items():
            who = "every profile" if profile == ALL else profile
            yield f"{gate.name}: {who} {how} by an earlier order: {reason}; {again}"


def stopped_by_gate(gate: str | None) -> bool:
    """Return whether all batches of a shared gate were cancelled, and that was not taken back."""
    return gate is not None and ALL in _orders_to_all(Path(gate)).stopped


def _orders_to_all(gate: Path) -> Control:
    with _readable(shared_control(gate)):
        return ControlFile(shared_control(gate)).read()


@contextmanager
def _readable(orders: Path) -> Generator[None]:
    """Orders that cannot be read are an error that names their file."""
    try:
        yield
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "the file does not contain orders"
        hint = "remove the file, then give its orders (tbench ctl) again"
        raise UserError(f"these orders cannot be read: {why}", where=str(orders), hint=hint) from error


def _runs(batch: Batch) -> bool:
    return any(process.kind == "runner" for process in live_processes(batch))


def _give(where: Path, batches: list[Batch], file: ControlFile, order: ControlOrder) -> IssuedOrder:
    plans: list[Plan] = [read_json(batch.plan_json, Plan) for batch in batches]
    profiles = list(dict.fromkeys(job.profile for plan in plans for job in plan.jobs))
    found = [(batch, _alive(batch)) for batch in batches]
    alive = {trial: profile for _, trials in found for trial, profile in trials.items()}
    if order.action == "set" and not order.value:
        raise UserError("parallel must be at least 1", hint="tbench ctl pause keeps new trials from starting")
    shared = where not in [batch.folder for batch in batches]
    if shared:  # an order to a profile of a batch that is over can be taken back
        told = _orders_to_all(where)
        profiles += [name for name in (*told.paused, *told.stopped) if name not in (ALL, *profiles)]
    if order.action == "cancel" and not order.targets and shared:
        targets = [ALL]
    else:
        targets = _targets(where, order, profiles, alive)
    with _readable(file.path):
        file.change(_change(order, targets, alive, shared=shared))
    for batch in batches:
        for target in targets:
            note(batch, order, target, alive.get(target))
    if order.action not in TRIALS:
        return IssuedOrder(targets, [])
    named = set(targets)
    ends = [(batch, [trial for trial, of in trials.items() if {trial, of, ALL} & named]) for batch, trials in found]
    return IssuedOrder(targets, ends)


def note(batch: Batch, order: ControlOrder, target: str, profile: str | None = None, by: str = "tbench ctl") -> None:
    """Write down that somebody gave an order."""
    detail = {"action": order.action, "target": target, "by": by} | ({"value": order.value} if order.value else {})
    trial = target if profile is not None else None
    about = profile if profile is not None or target == ALL else target
    append_jsonl(
        batch.events_jsonl, Event.now("control", profile=about, trial=trial, error=order.reason, detail=detail)
    )


def _alive(batch: Batch) -> dict[str, str]:
    """The trials that run or wait to run, with their profiles."""
    state = replay(None, read_jsonl(batch.events_jsonl, Event).records)
    running = {trial.name: trial.profile for trial in state.running}
    return running | {waiting.trial: waiting.profile for waiting in state.waiting}


def _targets(where: Path, order: ControlOrder, profiles: list[str], alive: dict[str, str]) -> list[str]:
    if not order.targets:
        if order.action in TRIALS:
            raise UserError(f"tbench ctl {order.action}: name a profile or a trial")
        return [ALL]
    found: list[str] = []
    for name in order.targets:
        trials = [trial for trial in alive if trial == name] or [trial for trial in alive if trial.startswith(name)]
        if name in profiles:
            found.append(name)
        elif order.action not in TRIALS or not trials:
            known = profiles if order.action not in TRIALS else [*profiles, *alive]
            what = "profile" if order.action not in TRIALS else "profile, running or waiting trial"
            raise UserError(f'no {what} is called "{name}"', where=str(where), hint=did_you_mean(name, known))
        elif len(trials) > 1:
            raise UserError(f'several trials start with "{name}": {", ".join(trials)}', where=str(where))
        else:
            found += trials
    return found


def _change(
    order: ControlOrder, targets: list[str], alive: dict[str, str], *, shared: bool
) -> Callable[[Control], None]:
    def change(control: Control) -> None:
        for target in targets:
            of_profile = [trial for trial, profile in alive.items() if target in (profile, ALL)]
            if order.action == "pause":
                control.paused[target] = order.reason
            elif order.action == "resume":
                _refuse_resume(control, target, shared=shared)
                control.paused = _without(control.paused, target)
                if shared:
                    control.stopped = _without(control.stopped, target)
                    control.cancel = control.cancel if control.stopped else {}
            elif order.action == "set" and order.value is not None:
                control.parallel = {**({} if target == ALL else control.parallel), target: order.value}
            elif order.action == "requeue":
                control.requeue |= dict.fromkeys(of_profile or [target], order.reason)
            elif order.action == "cancel":
                control.cancel |= dict.fromkeys(of_profile or [target], order.reason)
                if target not in alive:
                    control.stopped[target] = f"cancelled: {order.reason}"

    return change


def _refuse_resume(control: Control, target: str, *, shared: bool) -> None:
    """One profile cannot be let go when all are held, nor in a batch when it was cancelled there."""
    if target == ALL:
        return
    everything = f"everything is paused: {control.paused[ALL]}" if ALL in control.paused else None
    if shared and ALL in control.stopped:
        everything = f"everything was {control.stopped[ALL]}"
    if everything is not None:
        hint = f"to resume {target} only: tbench ctl resume without a name, then pause all other profiles"
        raise UserError(everything, hint=hint)
    if not shared and (stopped := control.why_stopped(target)) is not None:
        hint = "when this run has ended, tbench resume runs the cancelled trials"
        raise UserError(f"{target} was stopped: {stopped}", hint=hint)


def _without(held: dict[str, str], target: str) -> dict[str, str]:
    return {} if target == ALL else {name: reason for name, reason in held.items() if name != target}
