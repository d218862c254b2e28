"""The live view on a terminal: follow the batch, draw, listen to keys, until the batch is over or somebody leaves."""

import io
import signal
import sys
import time
from dataclasses import dataclass, field, replace

from rich.console import Console, Group
from rich.live import Live

from terminalbench.live.feed import Feed
from terminalbench.live.model import TrialKey
from terminalbench.watch.controls import Controls, Mode, Wish, keys
from terminalbench.watch.logs import LogTail, last_sign, read_tail
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

    feed: Feed
    terminal: Terminal
    console: Console
    controls: Controls = field(default_factory=Controls)
    stopping: bool = False
    _signs: dict[TrialKey, float] = field(default_factory=dict)
    _signs_at: float = 0.0
    _tail: LogTail | None = None

    def run(self) -> ViewEnd:
        """Show the batch until there is a reason to end."""
        self.feed.poll(time.time())
        if self.feed.over and self.terminal.channel is None:
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
                changed = self.feed.poll(time.time()) or changed
                urgent = bool(heard.data or heard.signals)
                if self.feed.over and self.terminal.channel is None:
                    return ViewEnd.OVER

    def _heard(self, heard: Heard, live: Live) -> ViewEnd | None:
        if heard.data:
            self._pressed(heard.data)
        if heard.closed:  # without a word: the run did not end, it was killed
            return ViewEnd.OVER if self.terminal.last_words else ViewEnd.ORPHANED
        if heard.hung_up:
            return ViewEnd.TERMINATED
        if self.controls.wish is not None:
            return ViewEnd.STOP if self.controls.wish is Wish.STOP else ViewEnd.LEFT
        return self._signalled(heard.signals, live)

    def frame(self, now: float) -> Frame:
        """What to draw now."""
        return Frame(
            state=self.feed.state,
            place=self.feed.place,
            now=now,
            controls=self.controls,
            note=self.feed.note,
            plan_problem=self.feed.plan_problem,
            signs=self._signs,
            tail=self._tail,
            stopping=self.stopping,
            over=self.feed.over,
        )

    def _draw(self, live: Live) -> None:
        now = time.time()
        if not 0 <= now - self._signs_at < SIGNS_SEC:
            self._signs_at = now
            running = self.feed.state.running[:_SIGNS_LIMIT]
            found = {trial.key: last_sign(self.feed.batch, trial.key) for trial in running}
            self._signs = {key: sign for key, sign in found.items() if sign is not None}
        self._tail = None
        if self.controls.mode is Mode.TAIL and self.controls.chosen is not None:
            self._tail = read_tail(self.feed.batch, self.controls.chosen, self.feed.secrets, self.controls.file)
            top = max(0, len(self._tail.lines) - 1)
            self.controls = replace(self.controls, scroll=min(self.controls.scroll, top))
        size = self.console.size
        live.update(Group(*render(self.frame(now), size.width, size.height)), refresh=True)

    def _pressed(self, data: bytes) -> None:
        state = self.feed.state
        trials = [trial.key for trial in [*state.running, *reversed(state.finished)]]
        for key in keys(data):
            self.controls = self.controls.press(key, trials)
            if self.controls.wish is not None:
                return

    def _signalled(self, signals: set[int], live: Live) -> ViewEnd | None:
        if signal.SIGTSTP in signals:
            self.terminal.suspend(live.stop, lambda: live.start(refresh=True))
        if signal.SIGTERM in signals or signal.SIGHUP in signals:
            return ViewEnd.TERMINATED
        if signal.SIGINT in signals:
            if not self.controls.owner:
                return ViewEnd.INTERRUPTED
            self.stopping = True  # the run got the same signal and ends by itself
        return None


def show(feed: Feed, channel: int | None = None) -> ViewEnd:
    """Show a batch on this terminal; see `terminalbench.watch.terminal.usable`."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that knows no UTF-8 shows "?" instead of an error
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    with Terminal(channel) as terminal:
        return App(feed, terminal, console, Controls(owner=channel is not None)).run()
