"""The table of arms while a SWE-Bench Pro experiment runs: a line an arm, the totals, what runs now.

`arm_lines` is a pure function of the live state of the batch. `ArmsWatch` shows it: renewed in place on a terminal, a
line a finished trial elsewhere. Whatever goes wrong in it ends the watching, never the run.
"""

import sys
import time

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from terminalbench.experiments.batch import Batch
from terminalbench.live.feed import Feed
from terminalbench.live.forecast import eta_sec
from terminalbench.live.model import LiveProfile, LiveTrial
from terminalbench.live.state import LiveState
from terminalbench.text.numbers import duration, plural
from terminalbench.text.screen import driver
from terminalbench.watch.follow import EventPrinter
from terminalbench.watch.layout import Column, clean, cut, fit, table
from terminalbench.watch.tables import cost, counted, took

_REFRESH_SEC = 0.5
_RUNNING = 8
_COLUMNS = (
    Column("ARM", lambda arm: Text(clean(arm.label), "cyan"), flexible=True, least=10),
    Column("Progress", lambda arm: arm.progress, right=True),
    Column("Resolved", lambda arm: counted(arm.outcomes["passed"], "green"), right=True),
    Column("Failed", lambda arm: counted(arm.outcomes["failed"], "red"), right=True),
    Column("Errors", lambda arm: counted(arm.broken, "yellow"), right=True),
    Column("Retries", lambda arm: counted(arm.step_retries, ""), 2, right=True),
    Column("Avg time", lambda arm: took(arm.mean_sec), 3, right=True),
    Column("Cost", cost, 4, right=True),
)


def arm_lines(state: LiveState, now: float, width: int) -> list[Text]:
    """The table, no line wider than `width`: progress is that of each arm, trials of an earlier run count."""
    arms = list(state.profiles.values())
    total = LiveProfile.total(arms)
    exact = eta_sec(state, now)
    left = exact if exact is not None else _rough_eta_sec(state, now)
    done = total.planned is not None and total.done >= total.planned
    until = state.last if done and state.last is not None else now
    elapsed = f" ({duration(until - state.began)})" if state.began is not None else ""
    about = "about " if exact is None else ""
    eta = "" if done else f"ETA {about}{duration(left)}" if left is not None else "ETA unknown"
    total.key = f"TOTAL{elapsed}"
    lines = table(_COLUMNS, arms, width, narrow=False, total=total)
    lines.insert(-1, Text("─" * min(width, max(line.cell_len for line in lines)), "dim"))
    many = len(state.running)
    head = [plural(many, "trial") + " running" if many else "", eta]
    lines += [fit(Text(cut("  ".join(filter(None, head)), width)), width)] if any(head) else []
    return [*lines, *_running(state, now, width)]


def _rough_eta_sec(state: LiveState, now: float) -> float | None:
    """Seconds until the end if all that is left takes what ended runs took on average, whichever arm they are of.

    None before the first run has ended.
    """
    arms = list(state.profiles.values())
    ended = [seconds for arm in arms for seconds in arm.durations]
    if not ended or any(arm.planned is None for arm in arms):
        return None
    each = sum(ended) / len(ended)
    running = state.running
    ages = [now - trial.started for trial in running if trial.started is not None]
    left = sum((arm.planned or 0) - arm.done for arm in arms)
    return max(0.0, each * left - sum(min(age, each) for age in ages)) / max(1, len(running))


def _running(state: LiveState, now: float, width: int) -> list[Text]:
    """The trials that run, the oldest first, each with where in its workflow it is."""

    def arm(trial: LiveTrial) -> str:
        found = state.profiles.get(trial.profile)
        return found.label if found is not None else trial.profile

    columns = (
        Column("", lambda one: f"  {clean(one.task or one.name)}", flexible=True, least=18),
        Column("", arm, flexible=True),
        Column("", lambda one: one.doing),
        Column("", lambda one: duration(now - one.started) if one.started is not None else "", right=True),
    )
    trials = state.running
    more = [Text(f"  and {len(trials) - _RUNNING} more", "dim")] if len(trials) > _RUNNING else []
    return [*table(columns, trials[:_RUNNING], width, style=lambda _trial: "dim"), *more]


class ArmsWatch:
    """Shows how a run goes: call `start` when its batch is there, `tick` often, `end` at the end."""

    def __init__(self, console: Console | None = None) -> None:
        terminal = sys.stdout.isatty() and console is None
        self._console = console or (Console(file=driver(sys.stdout)) if terminal else None)
        self._feed: Feed | None = None
        self._live: Live | None = None
        self._stream: EventPrinter | None = None
        self._shown = 0.0

    @property
    def in_place(self) -> bool:
        """Return whether the table is on the terminal now, so that nothing else may be written to it."""
        return self._live is not None

    def start(self, batch: Batch) -> None:
        """Show the table, or begin to print lines. A batch that runs in several rounds starts several times."""
        if self._feed is not None or self._stream is not None:
            return
        if self._console is None:
            self._stream = EventPrinter(Feed(batch), as_json=False)
            self._stream.skip()
            self._stream.start()
            return
        self._feed = Feed(batch)
        self._live = Live(console=self._console, auto_refresh=False, transient=False)
        self._live.start()
        self.tick()

    def tick(self) -> None:
        """Renew the table."""
        if self._live is None or time.monotonic() - self._shown < _REFRESH_SEC:
            return
        self._show()

    def _show(self) -> None:
        if self._live is None or self._feed is None or self._console is None:
            return
        self._shown = time.monotonic()
        try:
            self._feed.read()
            lines = arm_lines(self._feed.state, time.time(), self._console.width)
            self._live.update(Group(*lines), refresh=True)
        except Exception as error:  # noqa: BLE001  said once; the run does not depend on it
            self._leave()
            click.echo(f"watching ended: {type(error).__name__}: {error}; the run continues", err=True)

    def end(self) -> None:
        """Show the last state, and leave the terminal."""
        self._show()
        self._leave()
        if self._stream is not None:
            self._stream.end()
            self._stream = None

    def _leave(self) -> None:
        if self._live is not None:
            live, self._live = self._live, None
            live.stop()
