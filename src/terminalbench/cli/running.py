"""A run as a person sees it: what is left out, one line while it runs, one table at the end."""

import os
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

import click
import msgspec

from terminalbench.cli.topping_up import top_up_target
from terminalbench.errors import EXIT_FAILURE, EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.config import load
from terminalbench.experiments.plan import ExclusionKind, Plan, Selection
from terminalbench.files import encode_json
from terminalbench.index.queries import BatchView, view_batch
from terminalbench.index.results import export_index
from terminalbench.index.scan import scan_batch
from terminalbench.lab.select import Target
from terminalbench.live.feed import Feed
from terminalbench.live.line import run_line
from terminalbench.live.state import LiveState
from terminalbench.records import Event, Outcome
from terminalbench.report.text import batch_money, summary
from terminalbench.report.trial import printable
from terminalbench.runner.extend import is_quarantined
from terminalbench.runner.notify import Notifier
from terminalbench.runner.preflight import exclusion_lines, refuse_left_out
from terminalbench.runner.resume import ResumeRequest, resume
from terminalbench.runner.run import Listener, RunResult, prepare_run, run

if TYPE_CHECKING:
    from terminalbench.watch.follow import Watching

_REFRESH_SEC = 0.5


def run_file(
    file: Path, root: Path | None, selection: Selection, *, strict: bool, as_json: bool, watch: bool = False
) -> int:
    """Load, prepare and run an experiment; print what a person or a machine wants to know."""
    experiment = load(file, root)
    teller = Teller(quiet=as_json, watch=watch)
    teller.say("checking tasks, profiles and environment ...")
    prepared = prepare_run(experiment, selection)
    if strict:
        refuse_left_out(prepared.plan.excluded, str(file))
    listener = Listener(prepared=teller.started, tick=teller.tick, stopped=teller.stopped, event=teller.event)
    with teller:
        result = run(experiment, prepared, listener)
    return _tell_end(teller, result, as_json=as_json)


def resume_target(
    target: Target,
    request: ResumeRequest,
    *,
    as_json: bool,
    top_up: bool = False,
    watch: bool = False,
    strict: bool = False,
) -> int:
    """Go on with a batch; print what a person or a machine wants to know."""
    teller = Teller(quiet=as_json, watch=watch)
    teller.say("looking at what is there ...")
    listener = Listener(prepared=teller.resumed, tick=teller.tick, stopped=teller.stopped, event=teller.event)
    with teller:
        if top_up:
            result = top_up_target(target, listener, teller.tell)
        else:
            result = resume(target.batch, replace(request, strict=strict), target.experiment, listener)
    return _tell_end(teller, result, as_json=as_json)


def _tell_end(teller: "Teller", result: RunResult, *, as_json: bool) -> int:
    teller.done()
    view = result.view or refresh(result.batch)
    told = [] if result.view is not None else _notify_end(view, result.interrupted)
    for problem in dict.fromkeys((*result.problems, *told)):
        click.echo(problem, err=True)
    if result.view is not None:
        export_index(result.batch, view)
    if as_json and teller.watching is not None:
        click.echo(msgspec.json.encode({"kind": "summary", **as_document(view, result.interrupted)}).decode())
    elif as_json:
        click.echo(encode_json(as_document(view, result.interrupted)).decode(), nl=False)
    else:
        click.echo(summary(view), nl=False)
        place = os.path.relpath(result.batch.folder)
        here = Path(place).parts[0] == "results"
        where = "" if here else f" --results {os.path.relpath(result.batch.folder.parent.parent)}"
        click.echo(f"\nbatch {view.plan.batch}: {place}")
        for line in going_on(view, place, interrupted=result.interrupted, nothing_ran=result.view is not None):
            click.echo(line)
        click.echo(f"who is better, and how sure: tbench compare {place}")
        click.echo(f"what each trial did: tbench analyze {place}, tbench show <trial>{where}")
        click.echo(f"in a browser: tbench view{where}, harbor view {place}/runs")
    return EXIT_INTERRUPTED if result.interrupted else exit_code(view)


def going_on(view: BatchView, place: str, *, interrupted: bool, nothing_ran: bool = False) -> list[str]:
    """How to go on with a batch that is not through, and what stands in the way."""
    excluded = view.plan.exclusions()
    not_run = [cell for cell in view.cells if cell.outcome in (Outcome.NOT_RUN, Outcome.CANCELLED)]
    open_cells = [cell for cell in not_run if not is_quarantined(excluded(cell.profile, cell.task))]
    left_out = len(not_run) - len(open_cells)
    errored = [cell for cell in view.cells if cell.outcome is Outcome.ERRORED]
    broken = sum(not is_quarantined(excluded(cell.profile, cell.task)) for cell in errored)
    lines = ["nothing was missing, so nothing ran"] if nothing_ran and not open_cells else []
    why = {e.kind for cell in open_cells if (e := excluded(cell.profile, cell.task)) is not None}
    if ExclusionKind.BUDGET in why and not interrupted:
        lines.append(
            "the budget is used up; raise run.budget_usd in the experiment file, then: tbench resume FILE.toml"
        )
    elif interrupted or open_cells:
        lines.append(f"{'interrupted; ' if interrupted else ''}go on with it: tbench resume {place}")
    if left_out:
        lines.append(
            f"quarantined ({_trials(left_out)}): tbench check FILE.toml --release lets go of what is in order, "
            "then: tbench resume FILE.toml"
        )
    if broken:
        lines.append(f"run what broke again ({_trials(broken)}): tbench resume {place} --retry-errors")
    return lines


def _trials(number: int) -> str:
    return f"{number} trial{'' if number == 1 else 's'}"


def _notify_end(view: BatchView, interrupted: bool) -> list[str]:
    """Tell whoever wants to know that it is over; return what went wrong."""
    notifier = Notifier.of(view.plan)
    measured, passed = (sum(c.measured for c in view.cells), sum(c.outcome is Outcome.PASSED for c in view.cells))
    how = "interrupted" if interrupted else "finished"
    spent = batch_money(view)
    notifier.tell("finished", f"{how}: {measured} of {len(view.cells)} measured, {passed} passed, cost {spent}")
    if measured and notifier.wants("regression"):
        for sentence in _regressions(view):
            notifier.tell("regression", sentence)
    return notifier.finish()


def _regressions(view: BatchView) -> list[str]:
    """The declared contrasts in which a profile is proven worse, each in its sentence."""
    from terminalbench.analytics.compare import compare
    from terminalbench.analytics.rows import rows_of
    from terminalbench.analytics.settings import settings_of

    found = compare(rows_of([view]), settings_of([view]))
    return [contrast.sentence for contrast in found.contrasts if contrast.verdict == "worse"]


def refresh(batch: Batch) -> BatchView:
    """Bring index and export of a batch up to date, and view it."""
    report = scan_batch(batch)
    for problem in report.unreadable:
        click.echo(f"unreadable: {printable(problem)}", err=True)
    view = view_batch(batch)
    export_index(batch, view)
    return view


def exit_code(view: BatchView) -> int:
    """0 when every planned trial was measured, 3 when some were not, 1 when none was."""
    measured = sum(cell.measured for cell in view.cells)
    if measured == len(view.cells):
        return EXIT_OK
    return EXIT_INCOMPLETE if measured else EXIT_FAILURE


def as_document(view: BatchView, interrupted: bool) -> dict:
    """The end of a run for machines."""
    return {
        "batch": view.batch,
        "folder": view.plan.folder,
        "interrupted": interrupted,
        "cells": [
            {
                "profile": cell.profile,
                "task": cell.task,
                "attempt": cell.attempt,
                "outcome": cell.outcome,
                "reason": cell.reason,
                "trial": cell.row.name if cell.row else None,
                "job": cell.row.job if cell.row else None,
                "cost_usd": cell.row.usage.cost_usd if cell.row else None,
            }
            for cell in view.cells
        ],
        "superseded": [row.name for row in view.superseded],
    }


def _watching(*, as_json: bool) -> "Watching":
    from terminalbench.watch.follow import Watching

    return Watching(as_json=as_json)


class Teller:
    """Tells of a run: a line that renews itself on a terminal, next to nothing when piped; more when it is watched."""

    def __init__(self, *, quiet: bool, watch: bool = False) -> None:
        self.quiet = quiet
        self.live = sys.stderr.isatty() and not quiet
        self.told_at = 0.0
        self.began = time.time()
        self.feed: Feed | None = None
        self.watching = _watching(as_json=quiet) if watch else None
        self.later: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.watching is not None:
            self.watching.end()
        for text in self.later:
            click.echo(text, err=True)

    def tell(self, text: str) -> None:
        """Say something that stays: now, or when whoever watches has left the terminal."""
        if self.watching is not None:
            self.later.append(text)
        elif not self.quiet:
            self.done()
            click.echo(text, err=True)

    def say(self, text: str) -> None:
        """Put a text on the line, cut to the width of the terminal."""
        if self.live:
            width = shutil.get_terminal_size().columns - 1
            click.echo(f"\r\x1b[K{text[:width]}", nl=False, err=True)

    def started(self, plan: Plan, batch: Batch, trials: int) -> None:
        """Say what runs where, and what is left out."""
        self.done()
        for line in exclusion_lines(plan.excluded):
            click.echo(f"left out: {line}", err=True)
        if not self.quiet:
            place = os.path.relpath(batch.folder)
            click.echo(f"{plan.name}: {_trials(trials)} in batch {batch.number} ({place})", err=True)
        self._follow(batch)

    def _follow(self, batch: Batch) -> None:
        if self.watching is not None:
            self.watching.start(batch)
        elif self.live and self.feed is None:
            self.feed = Feed(batch)

    def resumed(self, plan: Plan, batch: Batch, trials: int) -> None:
        """Say which batch goes on, and what is left out."""
        self.done()
        for line in exclusion_lines(plan.excluded):
            click.echo(f"left out: {line}", err=True)
        if not self.quiet:
            place = os.path.relpath(batch.folder)
            click.echo(f"{plan.name}: going on with batch {batch.number} ({place}): {_trials(trials)} to run", err=True)
        self._follow(batch)

    def event(self, event: Event) -> None:
        """Say what the watchdog has found, when it comes up; a view of the run shows it by itself."""
        if self.watching is None and event.kind == "alert" and event.detail.get("state") == "raised" and not self.quiet:
            self.done()
            said = printable(event.error or "")
            click.echo(f"{event.detail.get('severity')} ({event.detail.get('cause')}): {said}", err=True)

    def tick(self) -> None:
        """Look after the live view, or renew the line."""
        if self.watching is not None:
            self.watching.tick()
        elif self.feed is not None and self._is_time():
            self.feed.read()
            self.line(self.feed.state)

    def line(self, state: LiveState) -> None:
        """Put the state of a batch on the line, at most twice a second."""
        if self._is_time():
            self.told_at = time.monotonic()
            self.say(printable(run_line(state, time.time(), self.began)))

    def _is_time(self) -> bool:
        return self.live and time.monotonic() - self.told_at >= _REFRESH_SEC

    def stopped(self, reason: str) -> None:
        """Say why the run was ended, at once: what follows may fail for the same reason."""
        self.done()
        if self.watching is not None:
            self.watching.end()
        click.echo(f"stopped: {reason}", err=True)

    def done(self) -> None:
        """Leave the line."""
        self.say("")
