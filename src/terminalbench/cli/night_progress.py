"""What `tbench overnight` says while a night runs, and at its end."""

import time
from typing import TYPE_CHECKING

import click

from terminalbench.cli.output import print_json
from terminalbench.cli.progress import StatusLine
from terminalbench.overnight.decisions import eta_sec
from terminalbench.overnight.loop import NightEnd, NightListener
from terminalbench.overnight.night import (
    IterationStatus,
    NightConfig,
    NightEvent,
    NightEventKind,
    NightState,
    Role,
    iterations_said,
)
from terminalbench.overnight.summary_model import TrainedNight, step_line
from terminalbench.records.values import known_total
from terminalbench.text.foreign import printable
from terminalbench.text.names import from_here, typed
from terminalbench.text.numbers import dollars, duration, plural

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from terminalbench.overnight.begin import PreparedNight
    from terminalbench.overnight.supervisor import NightSupervisor

_ALWAYS = (NightEventKind.QUARANTINED, NightEventKind.INCIDENT, NightEventKind.WORKER_LOST, NightEventKind.NOTE)
_PIPED_SEC = 300.0
"""So often a log is told how far it is."""
_SPOKEN = (*_ALWAYS, NightEventKind.ITERATION_ENDED, NightEventKind.SCALED, NightEventKind.RESUMED)


class NightTeller(StatusLine):
    """Tells of a night: a line that renews itself and one for each iteration on a terminal, little when piped.

    With `watch` the live view tells instead; where there is none, everything that happens is a line, or JSON.
    """

    def __init__(self, *, quiet: bool, watch: bool = False) -> None:
        super().__init__(quiet=quiet, refresh_sec=0.5)
        self.watch = watch
        self.view = None
        if watch and not quiet:
            from terminalbench.watch.attached import AttachableView, OwnView

            self.view = OwnView(AttachableView.NIGHT)

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *_: object) -> None:
        if self.view is not None:
            self.view.end()
        self.done()

    def listener(self) -> NightListener:
        """Return what the night tells."""
        return NightListener(self.begun, self.event, self.tick, self.step)

    def begun(self, night: "PreparedNight") -> None:
        """Say what runs, and where."""
        for note in night.notes:
            self.keep(f"note: {note}")
        config = night.config
        tasks, models = plural(len(config.tasks), "task"), ", ".join(config.specs)
        much = plural(config.iterations, "iteration") if config.iterations is not None else "iterations"
        until = f" until {config.until[:16].replace('T', ' ')}" if config.until is not None else ""
        self.keep(f"{config.suite_name}: {much} of {tasks} with {models}{until} in {from_here(night.folder.folder)}")
        self.told_at = time.monotonic()
        if not self.live and not self.watch:
            self.keep(f"tbench watch to follow the night: {typed(night.folder.folder)}")
        if config.validation_off is not None:
            self.keep(f"no validation by Claude: {config.validation_off}")

    @property
    def shown(self) -> bool:
        """Return whether the live view has the terminal."""
        return self.view is not None and self.view.shown

    def event(self, event: NightEvent) -> None:
        """Say what has happened, as far as it is of interest here."""
        if self.watch and self.quiet:
            print_json(event, in_line=True)
        spoken = tuple(NightEventKind) if self.watch else _SPOKEN if self.live else _ALWAYS
        if event.kind in spoken and event.kind is not NightEventKind.STARTED and not self.shown:
            self.keep(f"{event.time[11:19]}  {event.said}")

    def tick(self, night: "NightSupervisor") -> None:
        """Look after the live view, or renew the line."""
        if self.view is not None:
            self.view.start(night.folder.folder)
            self.view.tick()
        self._how_far(lambda: night_line(night.config, night.state, night.standing.spent_usd, night.state.clock.now()))

    def step(self, trained: TrainedNight) -> None:
        """Look after the live view, or renew the line, while the training runs."""
        if self.view is not None:
            self.view.tick()
        self._how_far(lambda: step_line(trained, time.time()))

    def _how_far(self, line: "Callable[[], str | None]") -> None:
        """Renew the line, unless the live view has the terminal; a log has one every few minutes."""
        due = not self.live and not self.quiet and time.monotonic() - self.told_at >= _PIPED_SEC
        if self.shown or not (due or self.is_time()) or (said := line()) is None:
            return
        if due:
            self.told_at = time.monotonic()
            self.keep(said)
        else:
            self.renew(said)

    def show_end(self, ended: NightEnd, *, as_json: bool) -> int:
        """Print what came of a night; its exit code."""
        for problem in ended.problems:
            click.echo(printable(problem), err=True)
        if as_json:
            document = _document(ended)
            print_json({"kind": "summary", **document} if self.watch else document, in_line=self.watch)
            return ended.exit_code
        state, place = ended.state, typed(ended.folder.folder)
        if ended.complete:
            click.echo(f"this night is complete: nothing is left to do in {from_here(ended.folder.folder)}")
        for line in ended.summary.headlines if ended.summary is not None else [f"{state.status}, without a report"]:
            click.echo(printable(line))
        if ended.training_stopped is not None:
            click.echo(printable(f"the training is not finished: {ended.training_stopped}"))
        if ended.exit_code:
            click.echo(f"to continue: tbench {ended.config.command} --resume {place}")
            if state.stopped or ended.training_stopped is not None:
                click.echo("  (add a larger --budget-usd or a later --until if one of them ended the night)")
        click.echo(f"the report: {from_here(ended.folder.report_md)}, {from_here(ended.folder.report_html)}")
        click.echo(f"its batches: tbench list --results {typed(ended.folder.results_root)}")
        return ended.exit_code


def night_line(config: NightConfig, state: NightState, spent_usd: float, now: float) -> str:
    """Return how far a night is, in one line."""
    own = [work for work in state.work if work.role is Role.ITERATION]
    over, done = sum(work.status.over for work in own), sum(work.status is IterationStatus.DONE for work in own)
    ends = [work.end for work in own if work.end is not None and work.status.over]
    passed, measured = sum(end.passed for end in ends), sum(end.measured for end in ends)
    parts = [iterations_said(done, over, config.iterations), f"{passed} of {measured} passed"]
    if spent_usd:
        parts.append(dollars(spent_usd))
    running = sum(work.lease is not None for work in state.work)
    parts.append(plural(running, "worker"))
    left = eta_sec(state, config.iterations, state.deadline, now)
    if left is not None:
        parts.append(f"{duration(left)} left")
    return ", ".join(parts)


def _document(ended: NightEnd) -> dict:
    own = [work for work in ended.state.work if work.role is Role.ITERATION]
    ends = [work.end for work in own if work.end is not None]
    told = ended.summary
    if told is not None:
        counts = {"trials": told.total, "measured": told.measured, "passed": told.passed}
        paid, unknown = told.cost_usd, told.cost_unknown
    else:
        counts = {name: sum(getattr(end, name) for end in ends) for name in ("trials", "measured", "passed")}
        paid, unknown = known_total(end.cost_usd for end in ends), 0
    return {
        "run_id": ended.config.run_id,
        "folder": str(ended.folder.folder.resolve()),
        "status": ended.state.status,
        "stopped": ended.state.stopped,
        "training_stopped": ended.training_stopped,
        "asked_for": ended.config.iterations,
        "done": sum(work.status == "done" for work in own),
        **counts,
        "cost_usd": paid,
        "cost_unknown": unknown,
        "iterations": ended.state.work,
        "quarantine": ended.state.quarantine,
        "exit_code": ended.exit_code,
    }
