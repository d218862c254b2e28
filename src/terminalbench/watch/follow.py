"""A run that is watched while it runs: the live view on a terminal, a line a trial elsewhere, events as JSON;
and the table of arms of a SWE-Bench Pro experiment.

Whatever goes wrong here is said and ends the watching, never the run.
"""

import sys
import threading
import time
from dataclasses import dataclass, field

import click
import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from terminalbench.experiments.batch import Batch
from terminalbench.live.feed import Feed
from terminalbench.live.forecast import eta_sec
from terminalbench.live.model import LiveProfile, LiveTrial
from terminalbench.live.notices import notice_of
from terminalbench.live.state import LiveState
from terminalbench.records.event import Event
from terminalbench.text.foreign import printable_json
from terminalbench.text.numbers import duration, plural
from terminalbench.text.outcomes import ending
from terminalbench.text.screen import driver
from terminalbench.watch.attached import POLL_SEC, AttachableView, OwnView
from terminalbench.watch.tables import Column, clean, cost, counted, cut, fit, price, table, took

_END_SEC = 5.0
_SILENT = ("job_started", "job_ended", "trial_started", "trial_phase", "trial_cancelled", "heartbeat")


@dataclass
class Lines:
    """Turns events into lines; why trials are held or wait is said once, and again when the reason changes."""

    said: set[tuple[str, ...]] = field(default_factory=set)

    def line(self, state: LiveState, event: Event) -> str | None:
        """Return what to print for an event the state has just taken in; None: nothing."""
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


class EventPrinter:
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
            click.echo(f"watching ended: {type(error).__name__}: {error}; the run continues", err=True)

    def _print(self, event: Event) -> None:
        line = self._lines.line(self.feed.state, event) if not self.as_json else _in_json(event)
        if line is not None:
            click.echo(line)


def _in_json(event: Event) -> str:
    return printable_json(msgspec.json.encode(event).decode())


class RunWatcher:
    """Watches a run from inside its process: call `start` when the batch is there, `tick` often, `end` at the end."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self._batch: Batch | None = None
        self._view = OwnView(AttachableView.BATCH, self._print_lines)
        self._stream: EventPrinter | None = None

    def start(self, batch: Batch) -> None:
        """Show the view, or begin to print. A batch that runs in several rounds starts several times."""
        if self._batch is not None:
            return
        self._batch = batch
        if not self.as_json:
            self._view.start(batch.folder)
        if not self._view.shown:
            self._print_lines()

    def tick(self) -> None:
        """Look after the view: when it has ended, lines are printed instead."""
        self._view.tick()

    def end(self) -> None:
        """Take the view away; print the last lines."""
        self._view.end()
        if self._stream is not None:
            self._stream.end()
        self._stream = None

    def _print_lines(self) -> None:
        """Print what happens from now on. Looked at here and not in the thread: what comes after this moment counts."""
        if self._batch is None:
            return
        stream = EventPrinter(Feed(self._batch), as_json=self.as_json)
        try:
            stream.skip()
        except OSError as error:
            click.echo(f"watching ended: {error}; the run continues", err=True)
            return
        self._stream = stream
        stream.start()


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
