"""Running an experiment in a new batch, ending it early where its plan allows that, and what a batch is afterwards."""

import logging
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from terminalbench.errors import TbenchError, UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.experiment import Experiment, select_profiles
from terminalbench.experiments.plan import ExclusionKind, Plan
from terminalbench.experiments.planner import Selection
from terminalbench.harbor.limits.control import Control, ControlFile
from terminalbench.harbor.limits.gate import gate_of
from terminalbench.index.places import plan_or_none
from terminalbench.index.queries import BatchView, view_batch
from terminalbench.index.results import export_index, export_is_current
from terminalbench.index.scan import scan_batch
from terminalbench.index.totals import budget_use
from terminalbench.lab.arguments import checked
from terminalbench.lab.select import open_experiment
from terminalbench.live.limits import read_limits
from terminalbench.live.processes import announced_batches
from terminalbench.locks import lock_owner
from terminalbench.records.event import Event, EventKind
from terminalbench.records.trial import Outcome
from terminalbench.report.text import batch_money
from terminalbench.runner import run as runner
from terminalbench.runner.control import ControlOrder, note, stopped_by_gate
from terminalbench.runner.executors.local import harbor_loaded_once
from terminalbench.runner.notify import Notifier
from terminalbench.runner.run import Listener, RunResult, cluster, prepare_run
from terminalbench.text.foreign import printable
from terminalbench.text.numbers import percent

if TYPE_CHECKING:
    from terminalbench.analytics.model import Contrast


_START_SEC = 900.0

type Told = Listener | Callable[[Event], None]
"""Who is told how a run goes: of everything, or of its events."""


@dataclass(frozen=True)
class FinishedRun:
    """A batch when a command has run it. `view` is its state: every planned trial, and what became of it.

    `nothing_ran` when nothing was missing; `problems` are lines about what else went wrong. `over_budget` says which
    budgets are exceeded, its own and that of a gate it shares, and by how much.
    """

    batch: Batch
    view: BatchView
    interrupted: bool = False
    nothing_ran: bool = False
    problems: tuple[str, ...] = ()
    over_budget: tuple[str, ...] = ()

    @property
    def measured(self) -> int:
        """Return how many of the planned trials have a verdict: passed or failed."""
        return sum(cell.measured for cell in self.view.cells)

    @property
    def gate_stopped(self) -> bool:
        """True when all batches of the gate that it shares were cancelled, and that was not taken back."""
        return stopped_by_gate(self.view.plan.gate)

    @property
    def complete(self) -> bool:
        """Return whether every planned trial was measured that was not spared."""
        return all(cell.measured or cell.spared for cell in self.view.cells)


@checked
def run(
    experiment: Experiment | Path | str,
    *,
    tasks: Sequence[str] = (),
    profiles: Sequence[str] = (),
    attempts: int | None = None,
    labels: Mapping[str, str] | None = None,
    strict: bool = False,
    listener: Told | None = None,
    executor: str | None = None,
    gate: Path | str | None = None,
    root: Path | str | None = None,
    number: int | None = None,
    to_the_end: bool = False,
) -> FinishedRun:
    """Run an experiment: one Harbor job per profile, in a new batch. Returns when it is over.

    `tasks` and `profiles` pick some of it, by name or glob; `attempts` are instead of those of its file; `labels`
    come on top of those of the file. What cannot run is left out with its reason; with `strict` that is an error, and
    nothing runs. `listener` is called with every event of the batch; one that raises is called no more, the run goes
    on, and `problems` of the result say so.
    An interrupt (Ctrl-C) ends the running trials, and the result says so. Only the main thread can run a batch.
    `executor` is a name, an entry point or "module:Class"; `gate` a file that the batch shares with others: one budget,
    one deadline, one set of rate limits and orders. `number` is the one that the batch gets if it is free. Where the
    plan has `looks = "any"`, profiles whose comparisons are settled start no more trials, unless it is `to_the_end`.
    """
    opened, told = open_experiment(experiment, root), listener_of(listener)
    followed = told if to_the_end else EarlyStop(told).listener()
    own = [profile.parallel for profile in select_profiles(opened, profiles)]
    with cluster(replace(opened.run, executor=executor or opened.run.executor), own), harbor_loaded_once():
        selection = Selection(tasks, profiles, labels or {}, attempts)
        prepared = prepare_run(opened, selection, told.preparing, strict=strict)
        shared = Path(gate) if gate is not None else None
        result = runner.run(opened, prepared, followed, executor=executor, gate=shared, number=number)
    return ended(result, told)


def listener_of(told: Told | None) -> Listener:
    """A listener of everything, or a function as one of the events."""
    if threading.current_thread() is not threading.main_thread():
        hint = "call it from the main thread, or start tbench run in a separate process"
        raise UserError(
            "a batch must be run from the main thread, because it handles the signals of the process", hint=hint
        )
    if isinstance(told, Listener):
        return told
    return Listener(event=_GuardedCallback(told)) if told is not None else Listener()


class _GuardedCallback:
    """The function of a program that listens: it is called no more after its first error, and the run goes on."""

    def __init__(self, told: Callable[[Event], None]) -> None:
        self._told = told
        self.problems: list[str] = []

    def __call__(self, event: Event) -> None:
        if self.problems:
            return
        try:
            self._told(event)
        except Exception as error:
            said = printable(f"{type(error).__name__}: {error}")
            self.problems.append(f"the listener failed at {event.kind} and is not called any more: {said}")
            logging.getLogger(__name__).warning("%s", self.problems[0], exc_info=error)


def ended(result: RunResult, listener: Listener) -> FinishedRun:
    """Bring index and export of a batch up to date; send the notifications of its end, if something ran."""
    nothing_ran, problems = result.view is not None, result.problems
    if isinstance(listener.event, _GuardedCallback):
        problems = (*problems, *listener.event.problems)
    if result.view is not None:
        view = result.view
    else:
        unreadable = [f"unreadable: {printable(problem)}" for problem in scan_batch(result.batch).unreadable]
        view = view_batch(result.batch)
        problems = (*unreadable, *problems, *notify_end(view, result.interrupted, result.batch))
    if not (nothing_ran and result.as_indexed and export_is_current(result.batch)):
        export_index(result.batch, view)
    said = tuple(dict.fromkeys(problems))
    return FinishedRun(
        result.batch, view, result.interrupted, nothing_ran, said, tuple(_over_budget(result.batch, view))
    )


def _over_budget(batch: Batch, view: BatchView) -> Iterator[str]:
    """Return which budgets known costs have passed, and by how much."""
    use = budget_use(view)
    if use is not None and use.over_said is not None:
        yield use.over_said
    if view.plan.gate is not None and batch.gate_json.exists():
        together = read_limits(gate_of(batch, view.plan), batch.control_json).together
        if together is not None and together.over_said is not None:
            yield together.over_said


def notify_end(view: BatchView, interrupted: bool, batch: Batch | None = None) -> list[str]:
    """Send what `[notify]` asks for at the end of a batch: that it is over, and proven regressions. The failures.

    A regression is proven by all batches with the same profiles together, where `batch` says which they lie beside.
    """
    notifier = Notifier.of(view.plan)
    measured, passed = (sum(c.measured for c in view.cells), sum(c.outcome is Outcome.PASSED for c in view.cells))
    how = "interrupted" if interrupted else "finished"
    use = budget_use(view)
    over = f"; {use.over_said}" if use is not None and use.over_said is not None else ""
    spent = f"{batch_money(view)}{over}"
    notifier.tell("finished", f"{how}: {measured} of {len(view.cells)} measured, {passed} passed, cost {spent}")
    if measured and notifier.wants("regression"):
        from terminalbench.analytics.compare import compare_views
        from terminalbench.analytics.pool import pool

        for contrast in compare_views(pool([batch]).views if batch is not None else [view]).contrasts:
            if contrast.verdict == "worse":
                notifier.tell("regression", contrast.sentence)
    return notifier.finish()


@dataclass(frozen=True)
class DetachedRun:
    """A command in the background: its batch when it runs, its exit code when it has ended; neither: it prepares."""

    pid: int
    log: Path
    batch: Batch | None = None
    code: int | None = None


def detach(arguments: Sequence[str]) -> DetachedRun:
    """Start `tbench ARGUMENTS` in a session of its own, its output in a log; return when it runs or has ended."""
    with tempfile.NamedTemporaryFile(prefix="tbench-run-", suffix=".log", delete=False) as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "terminalbench.cli.main", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + _START_SEC
    while time.monotonic() < deadline:
        code = process.poll()
        batch = _batch_of(process.pid) if code is None else None
        if code is not None or batch is not None:
            return DetachedRun(process.pid, Path(log.name), batch, code)
        time.sleep(0.1)
    return DetachedRun(process.pid, Path(log.name))


def _batch_of(pid: int) -> Batch | None:
    owners = ((batch, lock_owner(batch.lock)) for batch in announced_batches())
    return next((batch for batch, owner in owners if owner is not None and owner.pid == pid), None)


HOPELESS = 0.15
"""A pair whose end decides with a smaller chance is given up."""
_LOOKS = 40
"""A run is looked at so many times, twice for each part of its plan."""
_BY = "tbench run"

type Pair = tuple[str, str]


@dataclass
class EarlyStop:
    """Follows a run whose plan allows a verdict at any time (`analysis.looks = "any"`); passes everything on to `told`.

    A pair of profiles is settled once its difference is shown, and once the rest of its trials will hardly show one:
    such a pair stays `inconclusive`, so giving up adds no false verdict. A profile whose pairs are all settled starts
    no trial more; what runs is finished. `tbench resume` runs the others all the same.
    """

    told: Listener
    _batch: Batch | None = None
    _plan: Plan | None = None
    _ended: int = 0
    _look_at: int = 0
    _each: int = 1
    _settled: dict[Pair, str] = field(default_factory=dict)
    _stopped: set[str] = field(default_factory=set)

    def listener(self) -> Listener:
        """Return what the run is to tell."""
        return replace(self.told, prepared=self._prepared, event=self._event, tick=self._tick)

    def _prepared(self, plan: Plan, batch: Batch, trials: int) -> None:
        if plan.analysis.looks == "any":
            self._batch, self._plan, self._each = batch, plan, max(1, trials // _LOOKS)
            self._look_at = self._each
        self.told.prepared(plan, batch, trials)

    def _event(self, event: Event) -> None:
        self._ended += event.kind == EventKind.TRIAL_ENDED
        self.told.event(event)

    def _tick(self) -> None:
        if self._batch is not None and self._plan is not None and self._ended >= self._look_at:
            self._look_at = self._ended + self._each
            try:
                self._look(self._batch, self._plan)
            except (TbenchError, OSError) as error:
                self._batch = None
                self.told.note(f"the run continues to its end, because its results cannot be read: {error}")
        self.told.tick()

    def _look(self, batch: Batch, plan: Plan) -> None:
        from terminalbench.analytics.compare import compare_views
        from terminalbench.analytics.pool import pool

        contrasts = compare_views(pool([batch]).views).contrasts
        for contrast in contrasts:
            pair = (contrast.new, contrast.old)
            if pair not in self._settled and (why := settled(contrast)) is not None:
                self._settled[pair] = why
        pairs = [(contrast.new, contrast.old) for contrast in contrasts]
        for profile in dict.fromkeys(job.profile for job in plan.jobs):
            own = [pair for pair in pairs if profile in pair]
            if own and profile not in self._stopped and all(pair in self._settled for pair in own):
                self._stopped.add(profile)
                self._stop(batch, profile, "; ".join(self._settled[pair] for pair in own))

    def _stop(self, batch: Batch, profile: str, reason: str) -> None:
        def change(control: Control) -> None:
            control.decided[profile] = reason

        ControlFile(batch.control_json).change(change)
        note(batch, ControlOrder("stop", (), reason), profile, by=_BY)
        self.told.note(f"{profile} starts no more trials: {reason}")


def settled(contrast: "Contrast") -> str | None:
    """Return why a pair needs no more trials, None while it does.

    A pair of which too little was measured, or that some missing trials would undo, is not settled.
    """
    looks = contrast.sequential
    if looks is None:
        return None
    if contrast.verdict in ("better", "worse"):
        return f"{contrast.new} is {contrast.verdict} than {contrast.old} (look {looks.decided_at} of {looks.looks})"
    if contrast.reason is not None or looks.chance is None or looks.chance >= HOPELESS:
        return None
    when = f"{percent(looks.chance)} likely, look {looks.look} of {looks.looks}"
    return f"the remaining trials would probably not separate {contrast.new} from {contrast.old} ({when})"


def ended_early(batch: Batch) -> bool:
    """Return whether trials of a batch were spared: who resumes it wants them."""
    plan = plan_or_none(batch)
    return plan is not None and any(one.kind is ExclusionKind.DECIDED for one in plan.excluded)
