"""The live view of a night as lines of text, for a width and a height.

The picture is a pure function of a `NightFrame`: workers with what they do, the iterations that ended last, what
happened.
"""

from dataclasses import dataclass, field
from datetime import datetime

from rich.text import Text

from terminalbench.overnight.decisions import eta_sec
from terminalbench.overnight.headlines import ran
from terminalbench.overnight.night import (
    IterationStatus,
    IterationWork,
    NightEvent,
    NightEventKind,
    Role,
    iterations_said,
)
from terminalbench.text.numbers import NOTHING, UNKNOWN, cost, dollars, duration, plural
from terminalbench.watch.controls import Controls, ScreenMode
from terminalbench.watch.layout import Column, LinePiece, ScreenRow, clean, cut, joined, table
from terminalbench.watch.night_feed import NightFeed
from terminalbench.watch.tables import NARROW
from terminalbench.watch.view import LONGEST_BAR, SHORTEST_BAR, question, text_page

_LOUD = {
    NightEventKind.WORKER_LOST: "bold red",
    NightEventKind.INCIDENT: "yellow",
    NightEventKind.QUARANTINED: "bold red",
}
_TOLD = (*_LOUD, NightEventKind.SCALED, NightEventKind.RESUMED, NightEventKind.ENDED, NightEventKind.NOTE)
_MARKS = {
    IterationStatus.DONE: "complete",
    IterationStatus.INCOMPLETE: "incomplete",
    IterationStatus.GIVEN_UP: "given up",
}
_WORKERS = (
    Column("worker", right=True),
    Column("iteration", flexible=True, least=9),
    Column("trials", right=True),
    Column("passed", 2, "pass", right=True),
    Column("running", 3, "run", right=True),
    Column("for", 1, right=True),
    Column("last beat", 1, "beat", right=True),
    Column("pid", 5, right=True),
    Column("doing", 4, flexible=True, least=8),
)
_ENDED = (
    Column("iteration", flexible=True, least=9),
    Column("state"),
    Column("measured", 1, right=True),
    Column("passed", right=True),
    Column("cost", 3, right=True),
    Column("took", 2, right=True),
    Column("why", 4, flexible=True, least=8),
)


_ASK = (
    "d  leave the view: the night continues here, in plain lines",
    "s  stop the night: running trials are cancelled; --resume continues it",
)
_HELP = """\
Keys
  ?                this page
  {leave}
  Ctrl-C           {interrupt}

Columns
  measured         trials with a verdict, of those planned
  passed           of the measured trials; errors and skips are in no rate
  trials           of a running iteration: ended, of those planned
  for, last beat   since its worker began, and since it last gave a sign
  cost             known cost; "unknown" counts trials without a known cost
  time left        from the iterations of this night

tbench report DIR shows what changed, and how certain it is."""


@dataclass
class NightFrame:
    """Everything one picture shows; `now` is by the clock of the night."""

    feed: NightFeed
    now: float = 0.0
    controls: Controls = field(default_factory=Controls)
    stopping: bool = False

    @property
    def word(self) -> str:
        """Return what the night does, in a word."""
        state = self.feed.state
        if self.feed.training and not self.feed.over:
            return "training"
        if state.status != "running":
            return state.status
        return "cut off" if self.feed.over else "stopping" if self.stopping else "running"


class NightPage(NightFrame):
    """A `NightFrame` that follows its night."""

    @classmethod
    def of(cls, feed: NightFeed, *, owner: bool) -> "NightPage":
        """The page as it is shown first; `owner`: by the night itself."""
        return cls(feed, controls=Controls(owner=owner))

    @property
    def over(self) -> bool:
        """Return whether no supervisor runs it."""
        return self.feed.over

    def poll(self) -> bool:
        """Take in what happened."""
        return self.feed.poll()

    def press(self, key: str) -> None:
        """Take a key."""
        self.controls = self.controls.press(key, [])

    def lines(self, width: int, height: int) -> list[Text]:
        """The picture as it is now."""
        self.now = self.feed.state.clock.now()
        return render_night(self, width, height)


def render_night(frame: NightFrame, width: int, height: int) -> list[Text]:
    """The lines of a picture: none is wider, and there are no more, than the terminal has."""
    width, height = max(1, width), max(1, height)
    owner = frame.controls.owner
    if frame.controls.mode is ScreenMode.HELP:
        leave = f"q                leave the view{', or stop the night: it asks' if owner else ''}"
        interrupt = "stop the night; twice: immediately" if owner else "leave; the night continues"
        lines = _HELP.format(leave=leave, interrupt=interrupt).splitlines()
        return text_page([Text(cut(line, width)) for line in lines], "any key: back", width, height)
    lines = _picture(frame, width, height)
    if frame.controls.mode is ScreenMode.ASK:
        asked = question(_ASK, width)
        lines[-len(asked) :] = asked[-height:]
    return lines


def _picture(frame: NightFrame, width: int, height: int) -> list[Text]:
    feed = frame.feed
    gap = [Text("")] if height >= 16 else []
    lines = [_title(frame, width), _progress(feed, width), *_training(feed, width), *gap]
    workers = table(_WORKERS, [_worker(frame, work) for work in feed.at_work], width, narrow=width < NARROW)
    lines += workers if len(workers) > 1 else [Text("no worker is running", "dim")]
    over = [work for work in reversed(feed.state.work) if work.status.over]
    told = [_event(event, width) for event in reversed(feed.events) if event.kind in _TOLD]
    left = height - 1 - len(lines) - 2 * len(gap)
    for_events = min(len(told), max(3, left // 3))
    room = max(0, left - for_events - 1)
    if over and room >= 1:
        rows = [_ended(work) for work in over[:room]]
        lines += [*gap, *table(_ENDED, rows, width, narrow=width < NARROW)]
    lines += [*gap, *told[:for_events]] if told else []
    leave = "q leave or stop" if frame.controls.owner else "q leave: the night continues"
    return text_page(lines, f"{leave}   ? help", width, height)


def _title(frame: NightFrame, width: int) -> Text:
    config, state, feed, word = frame.feed.config, frame.feed.state, frame.feed, frame.word
    began = state.clock.wall
    left = eta_sec(state, config.iterations, state.deadline, frame.now) if word == "running" else None
    pieces = [
        LinePiece(clean(feed.folder.folder.name), 3, "bold"),
        LinePiece(clean(f"{config.suite_name} with {', '.join(config.specs)}"), 4),
        LinePiece(f"{word} {duration(max(0.0, frame.now - began))}", 0, "bold"),
        LinePiece(f"until {config.until[11:16]}" if config.until else "", 2),
        LinePiece(f"about {duration(left)} left" if left is not None else "", 1),
    ]
    return joined(pieces, width, "  ·  " if width >= NARROW else "  ")


def _progress(feed: NightFeed, width: int, *, bar: bool = True) -> Text:
    config, state, tally = feed.config, feed.state, feed.tally
    own = [work for work in state.work if work.role is Role.ITERATION]
    over, done = sum(work.status.over for work in own), sum(work.status is IterationStatus.DONE for work in own)
    rate = f"{tally.passed} of {tally.measured} passed" if tally.measured else ""
    pieces = [
        LinePiece(iterations_said(done, done, config.iterations), 0, "bold"),
        LinePiece(f"{over - done} incomplete" if over > done else "", 3),
        LinePiece(rate, 1),
        LinePiece(f"{tally.measured}/{tally.trials} measured" if tally.trials else "", 4),
        LinePiece(_spend(feed), 2),
        LinePiece(f"{len(feed.at_work)} of {plural(state.workers, 'worker')}", 3),
        LinePiece(f"{plural(len(state.quarantine), 'task')} left out" if state.quarantine else "", 2, "yellow"),
        LinePiece(clean(f"stopped: {state.stopped}") if state.stopped else "", 2, "yellow"),
    ]
    line = joined(pieces, width)
    room = min(LONGEST_BAR, width - line.cell_len - 2)
    if not bar or room < SHORTEST_BAR or not config.iterations:
        return line
    filled = min(room, room * over // config.iterations)
    return Text.assemble(("█" * filled + "░" * (room - filled), "cyan"), "  ", line, no_wrap=True)


def _training(feed: NightFeed, width: int) -> list[Text]:
    """Return how far its training is, while one runs; what does not fit is left out, the least important first."""
    pieces = [LinePiece(clean(part), rank) for part, rank in zip(feed.training, (0, 1, 3, 4, 2), strict=False)]
    return [joined(pieces, width)] if pieces else []


def _spend(feed: NightFeed) -> str:
    if feed.standing is None:
        return ""
    budget = feed.config.budget_usd
    spent = cost(feed.standing.spent_usd, feed.standing.unknown)
    return f"{spent} of {dollars(budget)}" if budget is not None else spent


def _name(work: IterationWork) -> str:
    return str(work.number) if work.role is Role.ITERATION else f"{work.number} {work.role}"


def _worker(frame: NightFrame, work: IterationWork) -> ScreenRow:
    feed, lease = frame.feed, work.lease
    tally, beat = feed.tally_of(work), feed.beats.get((work.number, work.role))
    live = feed.batches.get(feed.place(work) or "")
    age = frame.now - beat.at if beat is not None else None
    running = live.state.running if live is not None else []
    doing = ", ".join(f"{trial.task} {trial.doing}" for trial in running) or (
        str(beat.phase) if beat is not None else ""
    )
    again = f"started {work.starts} times" if work.starts > 1 else ""
    return ScreenRow(
        [
            Text(str(lease.worker) if lease is not None else NOTHING),
            Text(_name(work)),
            Text(live.state.total.progress if live is not None else NOTHING),
            Text(str(tally.passed) if live is not None else NOTHING, "green" if tally.passed else "dim"),
            Text(str(len(running))),
            Text(duration(frame.now - lease.beat_at) if lease is not None else NOTHING),
            Text(
                f"{duration(max(0.0, age))} ago" if age is not None else NOTHING, "bold red" if (age or 0) > 30 else ""
            ),
            Text(str(lease.pid) if lease is not None else NOTHING, "dim"),
            Text(clean("; ".join(filter(None, [doing, again])))),
        ]
    )


def _ended(work: IterationWork) -> ScreenRow:
    end = work.end
    style = (
        "green"
        if work.status is IterationStatus.DONE
        else "yellow"
        if work.status is IterationStatus.INCOMPLETE
        else "red"
    )
    why = work.reason if work.status is not IterationStatus.DONE else None
    return ScreenRow(
        [
            Text(_name(work)),
            Text(_MARKS[work.status], style),
            Text(f"{end.measured}/{end.trials}" if end is not None else NOTHING),
            Text(str(end.passed) if end is not None else NOTHING),
            Text(dollars(end.cost_usd) if end is not None and end.cost_usd is not None else UNKNOWN),
            Text(_took(work)),
            Text(clean(why or "")),
        ]
    )


def _took(work: IterationWork) -> str:
    if work.started_at is None or work.finished_at is None:
        return NOTHING
    return duration(
        (datetime.fromisoformat(work.finished_at) - datetime.fromisoformat(work.started_at)).total_seconds()
    )


def total_line(feed: NightFeed) -> str:
    """Return how far a night is; of one that no process runs what its report says, in the same words."""
    if feed.summary is not None:
        return f"Ran: {ran(feed.summary)}"
    return f"{NightFrame(feed).word}: {_progress(feed, 10_000, bar=False).plain}"


def event_line(event: NightEvent) -> str:
    """One thing that happened: when, and what."""
    about = f" [{event.workers} workers]" if event.kind is NightEventKind.SCALED and event.workers is not None else ""
    return clean(f"{event.time[11:19]}  {event.said}{about}")


def _event(event: NightEvent, width: int) -> Text:
    return Text(cut(event_line(event), width), _LOUD.get(event.kind, ""))
