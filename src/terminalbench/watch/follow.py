"""A run that is watched while it runs: the live view on a terminal, a line a trial elsewhere, events as JSON.

Whatever goes wrong here is said and ends the watching, never the run. The view is a process of its own for that reason:

    python -m terminalbench.watch.follow <batch folder> <file descriptor>

The run holds the other end of a pipe: the view ends when that is closed. How the view ended is its exit code.
"""

import contextlib
import os
import signal
import subprocess
import sys
import termios
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import click
import msgspec

from terminalbench.experiments.batch import Batch
from terminalbench.live.feed import Feed
from terminalbench.live.notices import notice_of
from terminalbench.live.state import LiveState
from terminalbench.records import Event
from terminalbench.text.foreign import printable_json
from terminalbench.text.numbers import duration
from terminalbench.text.outcomes import ending
from terminalbench.text.paths import typed
from terminalbench.text.screen import driver
from terminalbench.watch.layout import clean
from terminalbench.watch.tables import price
from terminalbench.watch.terminal import RESET, ViewEnd, usable

POLL_SEC = 0.25
GOODBYE = b"."
_END_SEC = 5.0
_SILENT = ("job_started", "job_ended", "trial_started", "trial_phase", "trial_cancelled", "heartbeat")


@dataclass
class Lines:
    """Turns events into lines; why trials are held or wait is said once, and again when the reason changes."""

    said: set[tuple[str, ...]] = field(default_factory=set)

    def line(self, state: LiveState, event: Event) -> str | None:
        """What to print for an event the state has just taken in; None: nothing."""
        if event.kind == "trial_ended":
            return trial_line(state, event)
        if event.kind == "trial_held":
            return self._once(event, "held: nothing new starts", event.error or "no reason given")
        if event.kind == "trial_waiting":
            return self._once(event, "waiting", event.error or "no reason given", str(event.detail.get("cause")))
        if event.kind in _SILENT:
            return None
        cleared = " (cleared)" if event.detail.get("state") == "cleared" else ""
        return clean(f"{clock_time(event)}  {notice_of(event, None).line}{cleared}")

    def _once(self, event: Event, word: str, reason: str, cause: str | None = None) -> str | None:
        key = (word, event.profile or "", cause or reason)
        if key in self.said:
            return None
        self.said.add(key)
        return clean(f"{clock_time(event)}  {word} [{event.profile}]: {reason}")


def trial_line(state: LiveState, event: Event) -> str:
    """One finished trial: when, how far the batch is, how it ended, which, how long, how much, why."""
    trial = state.trials.get((event.job, event.trial or ""))
    retried = bool(event.detail.get("retried"))
    outcome = event.outcome or "errored"
    profile = state.profiles.get(event.profile or "")
    cost = event.usage.cost_usd if event.usage is not None else None
    attempt = f" #{state.attempt(trial)}" if trial is not None else ""
    why = ": ".join(str(part) for part in (event.detail.get("error_class"), event.error) if part)
    parts = [
        clock_time(event),
        state.total.progress,
        ending(outcome) + (", is tried again" if retried else ""),
        f"{event.task or event.trial}{attempt}",
        event.profile or "",
        duration(trial.duration) if trial is not None and not retried else "",
        price(cost, profile) if cost is not None or (profile is not None and profile.free) else "cost unknown",
        why if outcome != "passed" else "",
    ]
    return "  ".join(clean(part) for part in parts if part)


def clock_time(event: Event) -> str:
    """The time of day of an event, UTC, as it stands in it."""
    return clean(event.time[11:19] or "--:--:--")


class Stream:
    """Prints a batch as it goes: plain lines, or its events as JSON, one a line."""

    def __init__(self, feed: Feed, *, as_json: bool) -> None:
        self.feed = feed
        self.as_json = as_json
        self._lines = Lines()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lines", daemon=True)

    def skip(self) -> None:
        """Pass over what has happened so far."""
        self.feed.poll(time.time())

    def follow(self) -> None:
        """Print what is new."""
        self.feed.each = self._print
        self.feed.poll(time.time())

    def start(self) -> None:
        """Follow in a thread of its own: a reader that is slow, stuck or gone holds up nothing but the lines."""
        self._thread.start()

    def end(self) -> None:
        """Print the last lines of what was started."""
        self._over.set()
        self._thread.join(_END_SEC)

    def _run(self) -> None:
        try:
            while not self._over.wait(POLL_SEC):
                self.follow()
            self.follow()
        except Exception as error:  # noqa: BLE001  said once; the run does not depend on it
            click.echo(f"watching ended: {type(error).__name__}: {error}; the run goes on", err=True)

    def _print(self, event: Event) -> None:
        line = self._lines.line(self.feed.state, event) if not self.as_json else _in_json(event)
        if line is not None:
            click.echo(line)


def _in_json(event: Event) -> str:
    return printable_json(msgspec.json.encode(event).decode())


class AttachedView:
    """The view's process, seen from the run. It stays in our process group: only that may read this terminal."""

    def __init__(self, batch: Batch) -> None:
        theirs, self.channel = os.pipe()
        self.saved = termios.tcgetattr(sys.stdin.fileno())
        argv = [sys.executable, "-P", "-m", "terminalbench.watch.follow", str(batch.folder), str(theirs)]
        try:
            self.process = subprocess.Popen(argv, pass_fds=(theirs,))
        except OSError:
            os.close(self.channel)
            raise
        finally:
            os.close(theirs)

    def poll(self) -> int | None:
        """How the view ended; None while it is shown."""
        return self._ended(self.process.poll())

    def end(self) -> None:
        """Take the view away, because the run is over. A second call does nothing."""
        if self.channel < 0:
            return
        with contextlib.suppress(BrokenPipeError):
            os.write(self.channel, GOODBYE)
        os.close(self.channel)
        self.channel = -1
        try:
            code = self.process.wait(_END_SEC)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self._ended(code)

    def _ended(self, code: int | None) -> int | None:
        """Put back the terminal when the view was killed and could not."""
        if code is None or code in (ViewEnd.OVER, ViewEnd.LEFT, ViewEnd.STOP):
            return code
        # A process that changes a terminal from the background is stopped by a signal: the run must not be.
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        with contextlib.suppress(OSError, termios.error):  # the terminal is gone
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, self.saved)
            screen = driver(sys.stdout)
            screen.write(RESET)
            screen.flush()
        signal.signal(signal.SIGTTOU, before)
        return code


class Watching:
    """Watches a run from inside its process: call `start` when the batch is there, `tick` often, `end` at the end."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._batch: Batch | None = None
        self._view: AttachedView | None = None
        self._stream: Stream | None = None

    def start(self, batch: Batch) -> None:
        """Show the view, or begin to print. A batch that runs in several rounds starts several times."""
        if self._batch is not None:
            return
        self._batch = batch
        if not self.as_json and usable():
            try:
                self._view = AttachedView(batch)
            except OSError as error:
                click.echo(f"the live view cannot be started: {error}; the run goes on", err=True)
        if self._view is None:
            self._print_lines(batch)

    def tick(self) -> None:
        """Look after the view: when it has ended, say so and print lines instead."""
        code = self._view.poll() if self._view is not None else None
        if self._view is None or self._batch is None or code is None:
            return
        self._view.end()
        self._view = None
        self._print_lines(self._batch)  # before anything is said: what happens from then on is printed
        if code == ViewEnd.STOP:
            click.echo("stopping: running trials are cancelled", err=True)
            os.kill(os.getpid(), signal.SIGINT)
        elif code == ViewEnd.LEFT:
            click.echo("the run goes on here; Ctrl-C stops it", err=True)
        elif code != ViewEnd.OVER:
            click.echo(f"the live view ended (code {code}); the run goes on here, Ctrl-C stops it", err=True)

    def end(self) -> None:
        """Take the view away; print the last lines."""
        for shown in (self._view, self._stream):
            if shown is not None:
                shown.end()
        self._view = self._stream = None

    def _print_lines(self, batch: Batch) -> None:
        """Print what happens from now on. Looked at here and not in the thread: what comes after this moment counts."""
        stream = Stream(Feed(batch), as_json=self.as_json)
        try:
            stream.skip()
        except OSError as error:
            click.echo(f"watching ended: {error}; the run goes on", err=True)
            return
        self._stream = stream
        stream.start()


def main(arguments: list[str]) -> int:
    """The view's own process."""
    from terminalbench.watch.app import show

    folder, channel = Path(arguments[0]), int(arguments[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is meant for the run, until the view listens itself
    end = show(Feed(Batch(folder)), channel)
    if end is ViewEnd.ORPHANED:
        print(f"the run was killed; tbench resume {typed(folder)} goes on with it", file=sys.stderr)
    return end


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
