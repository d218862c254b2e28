"""The live view on a terminal: follow what runs, draw, listen to keys, until it is over or the person leaves."""

import io
import signal
import sys
import time
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from terminalbench.text.screen import driver
from terminalbench.watch.controls import Controls, keys
from terminalbench.watch.terminal import Terminal, TerminalInput, ViewEnd

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
