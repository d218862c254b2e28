"""The live view on a terminal: follow the batch, draw, listen to keys, until the batch is over or the person leaves."""

import io
import signal
import sys
import time
from dataclasses import dataclass, replace

from rich.console import Console, Group
from rich.live import Live

from terminalbench.live.feed import Feed
from terminalbench.text.screen import driver
from terminalbench.watch.controls import Controls, Mode, keys
from terminalbench.watch.logs import last_sign, read_tail
from terminalbench.watch.tables import Frame
from terminalbench.watch.terminal import Heard, Terminal, ViewEnd
from terminalbench.watch.view import render

POLL_SEC = 0.25
DRAW_SEC = 0.5
IDLE_SEC = 1.0
SIGNS_SEC = 2.0
_SIGNS_LIMIT = 64


@dataclass
class App:
    """One view of one batch. With a `channel` it belongs to a run, and ends when the other end is closed."""

    frame: Frame
    terminal: Terminal
    console: Console
    _signs_at: float = 0.0

    def run(self) -> ViewEnd:
        """Show the batch until there is a reason to end."""
        feed = self.frame.feed
        feed.poll(time.time())
        if feed.over and self.terminal.channel is None:
            return ViewEnd.OVER
        with Live(console=self.console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
            drawn, changed, urgent = 0.0, True, True
            while True:
                now = time.monotonic()
                if urgent or now - drawn >= (DRAW_SEC if changed else IDLE_SEC):
                    self._draw(live)
                    drawn, changed = now, False
                heard = self.terminal.wait(POLL_SEC)
                ending = self._heard(heard, live)
                if ending is not None:
                    return ending
                changed = feed.poll(time.time()) or changed
                urgent = bool(heard.data or heard.signals)
                if feed.over and self.terminal.channel is None:
                    return ViewEnd.OVER

    def _heard(self, heard: Heard, live: Live) -> ViewEnd | None:
        self._pressed(heard.data)
        if heard.closed:  # without a word: the run did not end, it was killed
            return ViewEnd.OVER if self.terminal.last_words else ViewEnd.ORPHANED
        if heard.hung_up:
            return ViewEnd.TERMINATED
        return self.frame.controls.wish or self._signalled(heard.signals, live)

    def _draw(self, live: Live) -> None:
        frame, feed = self.frame, self.frame.feed
        frame.now = time.time()
        if not 0 <= frame.now - self._signs_at < SIGNS_SEC:
            self._signs_at = frame.now
            found = {trial.key: last_sign(feed.batch, trial.key) for trial in feed.state.running[:_SIGNS_LIMIT]}
            frame.signs = {key: sign for key, sign in found.items() if sign is not None}
        frame.tail = None
        if frame.controls.mode is Mode.TAIL and frame.controls.chosen is not None:
            frame.tail = read_tail(feed.batch, frame.controls.chosen, feed.secrets, frame.controls.file)
            top = max(0, len(frame.tail.lines) - 1)
            frame.controls = replace(frame.controls, scroll=min(frame.controls.scroll, top))
        size = self.console.size
        live.update(Group(*render(frame, size.width, size.height)), refresh=True)

    def _pressed(self, data: bytes) -> None:
        for key in keys(data):
            if self.frame.controls.wish is None:
                state = self.frame.feed.state
                trials = [trial.key for trial in [*state.running, *reversed(state.finished)]]
                self.frame.controls = self.frame.controls.press(key, trials)

    def _signalled(self, signals: set[int], live: Live) -> ViewEnd | None:
        if signal.SIGTSTP in signals:
            self.terminal.suspend(live.stop, lambda: live.start(refresh=True))
        if signal.SIGTERM in signals or signal.SIGHUP in signals:
            return ViewEnd.TERMINATED
        if signal.SIGINT in signals:
            if not self.frame.controls.owner:
                return ViewEnd.INTERRUPTED
            self.frame.stopping = True  # the run got the same signal and ends by itself
        return None


def show(feed: Feed, channel: int | None = None) -> ViewEnd:
    """Show a batch on this terminal; see `terminalbench.watch.terminal.usable`."""
    screen = driver(sys.stdout)
    if isinstance(screen, io.TextIOWrapper):
        screen.reconfigure(errors="replace")  # in a process of its own, too, "?" stands for what a terminal cannot show
    console = Console(file=screen, highlight=False, markup=False, emoji=False)
    with Terminal(channel) as terminal:
        return App(Frame(feed, controls=Controls(owner=channel is not None)), terminal, console).run()
