"""The view of what this process runs, as a process of its own: whatever goes wrong there does not end the run.

    python -m terminalbench.watch.attached batch|night <folder> <file descriptor>

The run holds the other end of a pipe: the view ends when that is closed. How the view ended is its exit code.
"""

import contextlib
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import click

from terminalbench.text.paths import typed
from terminalbench.text.screen import driver
from terminalbench.watch.app import ViewPage, show
from terminalbench.watch.terminal import RESET, ViewEnd, usable

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
        from terminalbench.watch.batch_page import BatchPage

        return BatchPage.of(Feed(Batch(folder)), owner=True)
    from terminalbench.overnight.folder import NightFolder
    from terminalbench.watch.night import NightPage
    from terminalbench.watch.night_feed import NightFeed

    return NightPage.of(NightFeed(NightFolder(folder)), owner=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
