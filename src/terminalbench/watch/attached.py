"""The live view on a terminal: follow what runs, draw, listen to keys, until it is over or the person leaves.

The view of what this process runs is a process of its own: whatever goes wrong there does not end the run.

    python -m terminalbench.watch.attached batch|night <folder> <file descriptor>

The run holds the other end of a pipe: the view ends when that is closed. How the view ended is its exit code.
"""

import contextlib
import io
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from terminalbench.text.names import typed
from terminalbench.text.screen import driver
from terminalbench.watch.terminal import RESET, Controls, Terminal, TerminalInput, ViewEnd, keys, usable

POLL_SEC = 0.25
DRAW_SEC = 0.5
IDLE_SEC = 1.0


class ViewPage(Protocol):
    """What a view shows. `stopping`: the person has asked for the end of what runs."""

    controls: Controls
    stopping: bool

    @property
    def over(self) -> bool:
        """Return whether nothing more will happen."""

    def poll(self) -> bool:
        """Take in what has happened, and say whether anything did."""

    def press(self, key: str) -> None:
        """Take a key."""

    def lines(self, width: int, height: int) -> list[Text]:
        """The picture for a terminal of this size."""


@dataclass
class App:
    """One view of one page. With a `channel` it belongs to what runs, and ends when the other end is closed."""

    page: ViewPage
    terminal: Terminal
    console: Console

    def run(self) -> ViewEnd:
        """Show the page until there is a reason to end."""
        page = self.page
        page.poll()
        if self._over():
            return ViewEnd.OVER
        with Live(console=self.console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
            drawn, changed, urgent = 0.0, True, True
            while True:
                now = time.monotonic()
                if urgent or now - drawn >= (DRAW_SEC if changed else IDLE_SEC):
                    size = self.console.size
                    live.update(Group(*page.lines(size.width, size.height)), refresh=True)
                    drawn, changed = now, False
                heard = self.terminal.wait(POLL_SEC)
                ending = self._heard(heard, live)
                if ending is not None:
                    return ending
                changed = page.poll() or changed
                urgent = bool(heard.data or heard.signals)
                if self._over():
                    return ViewEnd.OVER

    def _over(self) -> bool:
        return self.page.over and self.terminal.channel is None

    def _heard(self, heard: TerminalInput, live: Live) -> ViewEnd | None:
        for key in keys(heard.data):
            if self.page.controls.wish is None:
                self.page.press(key)
        if heard.closed:  # without a word: what runs did not end, it was killed
            return ViewEnd.OVER if self.terminal.last_words else ViewEnd.ORPHANED
        if heard.hung_up:
            return ViewEnd.TERMINATED
        return self.page.controls.wish or self._signalled(heard.signals, live)

    def _signalled(self, signals: set[int], live: Live) -> ViewEnd | None:
        if signal.SIGTSTP in signals:
            self.terminal.suspend(live.stop, lambda: live.start(refresh=True))
        if signal.SIGTERM in signals or signal.SIGHUP in signals:
            return ViewEnd.TERMINATED
        if signal.SIGINT in signals:
            if not self.page.controls.owner:
                return ViewEnd.INTERRUPTED
            self.page.stopping = True  # what runs got the same signal and ends by itself
        return None


def show(page: ViewPage, channel: int | None = None) -> ViewEnd:
    """Show a page on this terminal; see `terminalbench.watch.terminal.usable`."""
    screen = driver(sys.stdout)
    if isinstance(screen, io.TextIOWrapper):
        screen.reconfigure(errors="replace")  # in a process of its own, too, "?" stands for what a terminal cannot show
    console = Console(file=screen, highlight=False, markup=False, emoji=False)
    with Terminal(channel) as terminal:
        return App(page, terminal, console).run()


GOODBYE = b"."
_END_SEC = 5.0


class AttachableView(StrEnum):
    """What can be shown from inside its process."""

    BATCH = "batch"
    NIGHT = "night"

    @property
    def word(self) -> str:
        """Return what it is called where its end is told."""
        return {AttachableView.BATCH: "run", AttachableView.NIGHT: "night"}[self]

    @property
    def resume(self) -> str:
        """The command that goes on with it."""
        return {AttachableView.BATCH: "tbench resume", AttachableView.NIGHT: "tbench overnight --resume"}[self]


class AttachedView:
    """The view's process, seen from the run. It stays in our process group: only that may read this terminal."""

    def __init__(self, what: AttachableView, folder: Path) -> None:
        theirs, self.channel = os.pipe()
        self.saved = termios.tcgetattr(sys.stdin.fileno())
        argv = [sys.executable, "-P", "-m", "terminalbench.watch.attached", what, str(folder), str(theirs)]
        try:
            self.process = subprocess.Popen(argv, pass_fds=(theirs,))
        except OSError:
            os.close(self.channel)
            raise
        finally:
            os.close(theirs)

    def poll(self) -> int | None:
        """Return how the view ended; None while it is shown."""
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


@dataclass
class OwnView:
    """Shows what this process runs, while there is a terminal for it: `start` once, `tick` often, `end` at the end.

    `gone` is called once when the view has left while the run goes on: from then on it is told otherwise.
    """

    what: AttachableView
    gone: Callable[[], None] = lambda: None
    started: bool = False
    view: AttachedView | None = None

    @property
    def shown(self) -> bool:
        """Return whether the view has the terminal."""
        return self.view is not None

    def start(self, folder: Path) -> None:
        """Show it, where there is a terminal for it. A second call does nothing."""
        if self.started:
            return
        self.started = True
        try:
            self.view = AttachedView(self.what, folder) if usable() else None
        except OSError as error:
            click.echo(f"the live view cannot be started: {error}; the {self.what.word} continues", err=True)

    def tick(self) -> None:
        """Say when the view has ended; a person who asked for the end of the run gets it."""
        code = self.view.poll() if self.view is not None else None
        if self.view is None or code is None:
            return
        self.end()
        self.gone()  # before anything is said: what happens from then on is told
        word = self.what.word
        if code == ViewEnd.STOP:
            click.echo("stopping: running trials are cancelled", err=True)
            os.kill(os.getpid(), signal.SIGINT)
        elif code == ViewEnd.LEFT:
            click.echo(f"the {word} continues here; Ctrl-C stops it", err=True)
        elif code != ViewEnd.OVER:
            click.echo(f"the live view ended (code {code}); the {word} continues here, and Ctrl-C stops it", err=True)

    def end(self) -> None:
        """Take the view away."""
        if self.view is not None:
            self.view.end()
        self.view = None


def main(arguments: list[str]) -> int:
    """The view's own process."""
    what, folder, channel = AttachableView(arguments[0]), Path(arguments[1]), int(arguments[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is meant for the run, until the view listens itself
    end = show(_page(what, folder), channel)
    if end is ViewEnd.ORPHANED:
        print(f"the {what.word} was killed; continue it with {what.resume} {typed(folder)}", file=sys.stderr)
    return end


def _page(what: AttachableView, folder: Path) -> ViewPage:
    if what is AttachableView.BATCH:
        from terminalbench.experiments.batch import Batch
        from terminalbench.live.feed import Feed
        from terminalbench.watch.view import BatchPage

        return BatchPage(Feed(Batch(folder)), controls=Controls(owner=True))
    from terminalbench.overnight.folder import NightFolder
    from terminalbench.watch.night import NightFeed, NightPage

    return NightPage(NightFeed(NightFolder(folder)), controls=Controls(owner=True))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
