"""Running an experiment in a new batch, and what a batch is when a command has run it."""

import logging
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.experiment import Experiment, select_profiles
from terminalbench.experiments.planner import Selection
from terminalbench.harbor.limits.gate import gate_of
from terminalbench.index.queries import BatchView, view_batch
from terminalbench.index.results import export_index, export_is_current
from terminalbench.index.scan import scan_batch
from terminalbench.index.totals import budget_use
from terminalbench.lab.arguments import checked
from terminalbench.lab.early_stop import EarlyStop
from terminalbench.lab.select import open_experiment
from terminalbench.live.limits import read_limits
from terminalbench.live.processes import announced_batches
from terminalbench.locks import lock_owner
from terminalbench.records.event import Event
from terminalbench.records.trial import Outcome
from terminalbench.report.text import batch_money
from terminalbench.runner import run as runner
from terminalbench.runner.control import stopped_by_gate
from terminalbench.runner.executors.forked import harbor_loaded_once
from terminalbench.runner.notify import Notifier
from terminalbench.runner.run import Listener, RunResult, cluster, prepare_run
from terminalbench.text.foreign import printable

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
