"""What a command says while it works: a line that renews itself on a terminal, next to nothing when piped.

Of an experiment over arms also, with --watch, the table of arms; and a log file.
"""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self

import click

from terminalbench.cli.output import ProgressLine, StatusLine, say
from terminalbench.errors import UserError
from terminalbench.experiments.plan import exclusion_lines
from terminalbench.live.feed import Feed
from terminalbench.live.forecast import run_line
from terminalbench.live.notices import Alert
from terminalbench.live.state import LiveState
from terminalbench.modes import make_folder
from terminalbench.runner.run import Listener
from terminalbench.text.foreign import printable
from terminalbench.text.names import from_here
from terminalbench.text.numbers import dollars, plural

if TYPE_CHECKING:
    from terminalbench.analytics.judge.request import JudgeProgress
    from terminalbench.experiments.batch import Batch
    from terminalbench.experiments.plan import Plan
    from terminalbench.records.event import Event


_LINE_SEC = 60


class AnalysisTeller(ProgressLine):
    """Tells how far an analysis and its judge are."""

    def progress(self, done: int, total: int) -> None:
        """Show how far the analysis is."""
        self.tell("analysing", done, total)

    def judging(self, now: "JudgeProgress") -> None:
        """Show how far the judge is."""
        cost = f", {dollars(now.spent_usd)}" if now.spent_usd else ""
        self.tell("judging", now.done, now.total, f" ({now.cached} from cache{cost})")


class RunTeller(StatusLine):
    """Tells of a run; with `watch` the live view or a line for each trial tells instead."""

    def __init__(self, *, quiet: bool, watch: bool = False) -> None:
        super().__init__(quiet=quiet, refresh_sec=0.5)
        self.began = time.monotonic()
        self.feed: Feed | None = None
        self.watching = None
        if watch:
            from terminalbench.watch.follow import RunWatcher

            self.watching = RunWatcher(as_json=quiet)
        self.later: list[str] = []
        self.begun = False
        self.doing = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if any(error):
            self.done()  # what went wrong has a line of its own
        if self.watching is not None:
            self.watching.end()
        for text in self.later:
            click.echo(printable(text), err=True)

    def listener(self, doing: str) -> Listener:
        """Return what the run tells; `doing` says what is done with the batch when it starts."""

        def prepared(plan: "Plan", batch: "Batch", trials: int) -> None:
            self.begun = True
            self.done()
            if plan.excluded:
                say(*(f"left out: {line}" for line in exclusion_lines(plan.excluded)), err=True)
            if not self.quiet:
                said = doing.format(trials=plural(trials, "trial"), number=batch.number, place=from_here(batch.folder))
                say(f"{plan.name}: {said}", err=True)
            if self.watching is not None:
                self.watching.start(batch)
            elif self.live and self.feed is None:
                self.feed = Feed(batch)

        return Listener(prepared, self.tick, self.event, self.stopped, self.note, self.preparing)

    def note(self, text: str) -> None:
        """Say something that stays: now, or when the live view has left the terminal."""
        if self.watching is not None:
            self.later.append(text)
        else:
            self.keep(text)

    def preparing(self, text: str) -> None:
        """Show what is done before the first trial; where lines stay, once a minute and when it is another thing."""
        doing, now = text.partition(" ")[0], time.monotonic()
        if self.live:
            self.renew(text)
        elif not self.quiet and (doing != self.doing or now - self.told_at > _LINE_SEC):
            self.doing, self.told_at = doing, now
            click.echo(printable(text), err=True)

    def event(self, event: "Event") -> None:
        """Say what the watchdog has found, when it comes up; a view of the run shows it by itself."""
        if self.watching is None and event.kind == "alert" and event.detail.get("state") == "raised":
            self.keep(Alert.of(event).line)

    def tick(self) -> None:
        """Look after the live view, or renew the line."""
        if self.watching is not None:
            self.watching.tick()
        elif self.feed is not None and self.is_time():
            self.feed.read()
            self.line(self.feed.state)

    def line(self, state: LiveState) -> None:
        """Put the state of a batch on the line."""
        if self.is_time():
            now = time.time()
            self.renew(run_line(state, now, now - (time.monotonic() - self.began)))

    def stopped(self, reason: str) -> None:
        """Say why the run was ended, at once: what follows may fail for the same reason."""
        self.done()
        if self.watching is not None:
            self.watching.end()
        click.echo(printable(f"stopped: {reason}"), err=True)


_STARTED = "{trials} in batch {number} ({place})"


class ArmTeller(RunTeller):
    """Tells of the run of an experiment over arms."""

    def __init__(self, *, watch: bool, log_file: Path | None) -> None:
        super().__init__(quiet=False)
        self._arms = None
        if watch:
            from terminalbench.watch.follow import ArmsWatch

            self._arms = ArmsWatch()
        self._log = ExperimentLog(log_file) if log_file is not None else None

    def __exit__(self, *error: object) -> None:
        if self._arms is not None:
            self._arms.end()
        super().__exit__(*error)
        if self._log is not None:
            self._log.close()

    def listener(self, doing: str = _STARTED) -> Listener:
        """Return what the run tells: as `RunTeller`, with the table in the place of its line, and every event to the
        log."""
        usual = super().listener(doing)
        arms, log = self._arms, self._log

        def prepared(plan: "Plan", batch: "Batch", trials: int) -> None:
            usual.prepared(plan, batch, trials)
            if log is not None:
                log.start(batch)
                log.say(f"{plan.name}: {trials} trials, {batch.folder}")
            if arms is not None:
                self.feed = None  # its line would be written over the table
                arms.start(batch)

        def note(text: str) -> None:
            if arms is not None and arms.in_place:
                self.later.append(text)
            else:
                usual.note(text)
            self._logged(text)

        def event(event: "Event") -> None:
            if log is not None:
                log.tell(event)
            if arms is None or not arms.in_place:
                usual.event(event)

        def stopped(reason: str) -> None:
            if arms is not None:
                arms.end()
            usual.stopped(reason)
            self._logged(f"stopped: {reason}")

        tick: Callable[[], None] = usual.tick if arms is None else arms.tick
        return Listener(prepared, tick, event, stopped, note)

    def _logged(self, text: str) -> None:
        if self._log is not None:
            self._log.say(text)


class ExperimentLog:
    """A file that gains a line for each trial that ends, and for whatever else happens. It is never cut."""

    def __init__(self, path: Path) -> None:
        try:
            make_folder(path.parent)
            self._file = path.open("a", encoding="utf-8", errors="replace")
        except OSError as error:
            raise UserError(
                f"cannot be written: {error.strerror}", where=str(path), hint="name another --log-file"
            ) from error
        self._feed: Feed | None = None

    def start(self, batch: "Batch") -> None:
        """Follow a batch from now on."""
        from terminalbench.watch.follow import Lines

        if self._feed is None:
            self._feed, self._lines = Feed(batch), Lines()
            self._feed.read()

    def say(self, text: str) -> None:
        """A line."""
        with contextlib.suppress(OSError):  # a full disk ends no run; the run itself says so
            self._file.write(f"{printable(text)}\n")
            self._file.flush()

    def tell(self, event: "Event") -> None:
        """Tell what an event means, if a line is worth it."""
        if self._feed is None:
            return
        with contextlib.suppress(OSError):
            self._feed.read()
        line = self._lines.line(self._feed.state, event)
        if line is not None:
            self.say(line)

    def close(self) -> None:
        """The end of the file."""
        self._file.close()
