"""What an experiment over arms says while it runs: a line, or with --watch the table of arms; and a log file."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from terminalbench.cli.progress import RunTeller
from terminalbench.errors import UserError
from terminalbench.live.feed import Feed
from terminalbench.modes import make_folder
from terminalbench.runner.run import Listener
from terminalbench.text.foreign import printable

if TYPE_CHECKING:
    from terminalbench.experiments.batch import Batch
    from terminalbench.experiments.plan import Plan
    from terminalbench.records.event import Event

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
