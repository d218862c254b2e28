"""A run that is watched while it runs: the live view on a terminal, a line a trial elsewhere, events as JSON.

Whatever goes wrong here is said and ends the watching, never the run.
"""

import os
import signal
import threading
import time

import click
import msgspec

from terminalbench.experiments.batch import Batch
from terminalbench.live.feed import Feed
from terminalbench.records import Event
from terminalbench.watch.attached import EXIT_LEFT, EXIT_OVER, EXIT_STOP, AttachedView
from terminalbench.watch.lines import Lines
from terminalbench.watch.terminal import usable

POLL_SEC = 0.25
_END_SEC = 5.0


class Stream:
    """Prints a batch as it goes: plain lines, or its events as JSON, one a line."""

    def __init__(self, feed: Feed, *, as_json: bool) -> None:
        self.feed = feed
        self.as_json = as_json
        self._lines = Lines()

    def skip(self) -> None:
        """Pass over what has happened so far."""
        self.feed.poll(time.time())
        self.feed.each = self._print

    def follow(self) -> None:
        """Print what is new."""
        self.feed.each = self._print
        self.feed.poll(time.time())

    def _print(self, event: Event) -> None:
        if self.as_json:
            click.echo(msgspec.json.encode(event).decode())
            return
        line = self._lines.line(self.feed.state, event)
        if line is not None:
            click.echo(line)


class Printing:
    """A stream in a thread of its own: a reader that is slow, stuck or gone holds up nothing but the lines."""

    def __init__(self, batch: Batch, *, as_json: bool) -> None:
        self._stream = Stream(Feed(batch), as_json=as_json)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lines", daemon=True)
        # Now and not in the thread: what has happened so far is passed over, and what comes is not.
        self._stream.skip()

    def start(self) -> None:
        """Print what has come since, and what comes."""
        self._thread.start()

    def end(self) -> None:
        """Print the last lines."""
        self._over.set()
        self._thread.join(_END_SEC)

    def _run(self) -> None:
        try:
            while not self._over.wait(POLL_SEC):
                self._stream.follow()
            self._stream.follow()
        except Exception as error:  # noqa: BLE001  said once; the run does not depend on it
            click.echo(f"watching ended: {type(error).__name__}: {error}; the run goes on", err=True)


class Watching:
    """Watches a run from inside its process: call `start` when the batch is there, `tick` often, `end` at the end."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._batch: Batch | None = None
        self._view: AttachedView | None = None
        self._printing: Printing | None = None

    def start(self, batch: Batch) -> None:
        """Show the view, or begin to print. A batch that goes on in rounds starts several times."""
        if self._batch is not None:
            return
        self._batch = batch
        if not self.as_json and usable():
            try:
                self._view = AttachedView.start(batch)
            except OSError as error:
                click.echo(f"the live view cannot be started: {error}; the run goes on", err=True)
        if self._view is None:
            self._begin(self._lines_of(batch))

    def tick(self) -> None:
        """Look after the view."""
        if self._view is not None:
            self._look_after(self._view)

    def end(self) -> None:
        """Take the view away; print the last lines."""
        view, self._view = self._view, None
        if view is not None:
            view.end()
        printing, self._printing = self._printing, None
        if printing is not None:
            printing.end()

    def _look_after(self, view: AttachedView) -> None:
        code = view.poll()
        if code is None:
            return
        view.end()
        self._view = None
        printing = self._lines_of(view.batch)  # before anything is said: what happens from then on is printed
        if code == EXIT_STOP:
            click.echo("stopping: running trials are cancelled", err=True)
            os.kill(os.getpid(), signal.SIGINT)
        elif code == EXIT_LEFT:
            click.echo("the run goes on here; Ctrl-C stops it", err=True)
        elif code != EXIT_OVER:
            click.echo(f"the live view ended (code {code}); the run goes on here, Ctrl-C stops it", err=True)
        self._begin(printing)

    def _lines_of(self, batch: Batch) -> Printing | None:
        try:
            return Printing(batch, as_json=self.as_json)
        except OSError as error:
            click.echo(f"watching ended: {error}; the run goes on", err=True)
            return None

    def _begin(self, printing: Printing | None) -> None:
        if printing is not None:
            self._printing = printing
            printing.start()
