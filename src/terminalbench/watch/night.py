"""The live view of a night: `NightFeed` follows its files and reads only, `render_night` draws a `NightPage`, purely.

The picture shows the workers with what they do, the iterations that ended last, and what happened.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

import msgspec
from rich.text import Text

from terminalbench.campaign import GateStatus, standing
from terminalbench.errors import TbenchError
from terminalbench.experiments.batch import Batch
from terminalbench.json_files import decode_plain, read_json, tail_jsonl
from terminalbench.live.feed import Feed
from terminalbench.live.model import LiveTrial
from terminalbench.locks import living_owner
from terminalbench.overnight.crew import read_beat
from terminalbench.overnight.decisions import eta_sec
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.headlines import ran
from terminalbench.overnight.night import (
    Heartbeat,
    IterationStatus,
    IterationWork,
    NightConfig,
    NightEvent,
    NightEventKind,
    NightState,
    Role,
    WorkEnd,
    WorkerLease,
    iterations_said,
)
from terminalbench.overnight.nights import LARGEST, config_of
from terminalbench.overnight.summary_model import NightSummary, TrainedNight, read_trained, step_parts
from terminalbench.text.numbers import NOTHING, cost, dollars, duration, plural
from terminalbench.watch.tables import NARROW, Column, LinePiece, clean, counted, cut, joined, table
from terminalbench.watch.terminal import Controls, ScreenMode
from terminalbench.watch.view import ModeWords, text_page, with_bar, with_mode


@dataclass(frozen=True)
class IterationTally:
    """Trials of iterations: planned, with a verdict, passed. The pass rate is of those with a verdict."""

    trials: int = 0
    measured: int = 0
    passed: int = 0

    def __add__(self, other: "IterationTally") -> "IterationTally":
        return IterationTally(self.trials + other.trials, self.measured + other.measured, self.passed + other.passed)


@dataclass
class NightFeed:
    """Follows one night. `over`: no supervisor runs it. `each` is told of every event, `standing` is of its gate.

    `trained` is how far its training is, or what came of it; `summary` is that of a night that is over.
    """

    folder: NightFolder
    config: NightConfig = field(init=False)
    state: NightState = field(init=False)
    events: list[NightEvent] = field(default_factory=list)
    beats: dict[tuple[int, Role], Heartbeat] = field(default_factory=dict)
    batches: dict[str, Feed] = field(default_factory=dict)
    standing: GateStatus | None = None
    trained: TrainedNight | None = None
    over: bool = False
    summary: NightSummary | None = None
    each: Callable[[NightEvent], None] = lambda _event: None
    _offset: int = 0

    def __post_init__(self) -> None:
        self.config = config_of(self.folder)
        self.state = read_json(self.folder.state_json, NightState)

    def poll(self) -> bool:
        """Take in what happened since the last call, and say whether anything did."""
        self.over = living_owner(self.folder.lock) is None
        found = tail_jsonl(self.folder.events_jsonl, self._offset, NightEvent)
        self._offset = found.offset
        before, self.state = self.state, read_json(self.folder.state_json, NightState)
        self.events += found.records
        for event in found.records:
            self.each(event)
        trained = self.trained
        with suppress(TbenchError, OSError, msgspec.DecodeError):  # a file of the gate is just being written
            self.standing = standing(self.folder.gate_json)
            self.trained = read_trained(self.folder)
        self.summary = self._summary()
        changed = self._look_at_workers()
        return changed or bool(found.records) or self.state != before or self.trained != trained

    def _look_at_workers(self) -> bool:
        at_work = self.at_work
        beats = {(w.number, w.role): beat for w in at_work if (beat := read_beat(self.folder, w.number, w.role))}
        changed, self.beats = beats != self.beats, beats
        places = {place for work in at_work if (place := self.place(work)) is not None}
        self.batches = {place: self.batches.get(place) or self._feed(place) for place in places}
        read = [feed.read() for feed in self.batches.values()]
        return changed or any(read)

    def _feed(self, place: str) -> Feed:
        return Feed(Batch(self.folder.results_root / place))

    def _summary(self) -> NightSummary | None:
        """Return what its report says, once it is over; one that was cut off may have gone on after its last report."""
        if not self.over or self.state.status == "running":
            return None
        return self.summary or decode_plain(self.folder.summary_json, NightSummary, LARGEST)

    @property
    def training(self) -> list[str]:
        """Return how far its training is, in parts; empty while none runs."""
        return step_parts(self.trained, time.time()) if self.trained is not None else []

    @property
    def at_work(self) -> list[IterationWork]:
        """Return what has a worker now, by the number of the worker."""
        leased = [work for work in self.state.work if work.lease is not None]
        return sorted(leased, key=lambda work: work.lease.worker if work.lease is not None else 0)

    def place(self, work: IterationWork) -> str | None:
        """The batch of an iteration that is worked on, from the folder of batches."""
        beat = self.beats.get((work.number, work.role))
        return (beat.batch if beat is not None else None) or work.batch

    def tally_of(self, work: IterationWork) -> IterationTally:
        """The trials of an iteration: of its batch while it runs, else as its worker counted them."""
        feed = self.batches.get(self.place(work) or "") if work.lease is not None else None
        if feed is not None:
            total = feed.state.total
            return IterationTally(total.planned or 0, total.measured, total.outcomes["passed"])
        end = work.end
        return IterationTally(end.trials, end.measured, end.passed) if end is not None else IterationTally()

    @property
    def tally(self) -> IterationTally:
        """All trials of iterations so far; of a night that is over those of its report."""
        if (said := self.summary) is not None:
            return IterationTally(said.total, said.measured, said.passed)
        own = (self.tally_of(work) for work in self.state.work if work.role is Role.ITERATION)
        return sum(own, IterationTally())


_LOUD = {
    NightEventKind.WORKER_LOST: "bold red",
    NightEventKind.INCIDENT: "yellow",
    NightEventKind.QUARANTINED: "bold red",
}
_TOLD = (*_LOUD, NightEventKind.SCALED, NightEventKind.RESUMED, NightEventKind.ENDED, NightEventKind.NOTE)
_MARKS = {
    IterationStatus.DONE: ("complete", "green"),
    IterationStatus.INCOMPLETE: ("incomplete", "yellow"),
    IterationStatus.GIVEN_UP: ("given up", "red"),
}
_HELP = """\
Keys
  ?                this page
  q                {leave}
  Ctrl-C           {interrupt}

Columns
  measured         trials with a verdict, of those planned
  passed           of the measured trials; errors and skips are in no rate
  trials           of a running iteration: ended, of those planned
  for, last beat   since its worker began, and since it last gave a sign
  cost             known cost; "unknown" counts trials without a known cost
  time left        from the iterations of this night

tbench report DIR shows what changed, and how certain it is."""
_WORDS = ModeWords("night", "--resume", _HELP)


@dataclass
class NightPage:
    """Everything one picture shows, renewed from the files of the night; `now` is by the clock of the night."""

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


def render_night(frame: NightPage, width: int, height: int) -> list[Text]:
    """The lines of a picture: none is wider, and there are no more, than the terminal has."""
    width, height = max(1, width), max(1, height)
    lines = [] if frame.controls.mode is ScreenMode.HELP else _picture(frame, width, height)
    return with_mode(lines, frame.controls, _WORDS, width, height)


def _picture(frame: NightPage, width: int, height: int) -> list[Text]:
    feed = frame.feed
    gap = [Text("")] if height >= 16 else []
    lines = [_title(frame, width), _progress(feed, width), *_training(feed, width), *gap]
    workers = table(_worker_columns(frame), feed.at_work, width, narrow=width < NARROW)
    lines += workers if len(workers) > 1 else [Text("no worker is running", "dim")]
    over = [work for work in reversed(feed.state.work) if work.status.over]
    told = [_event(event, width) for event in reversed(feed.events) if event.kind in _TOLD]
    left = height - 1 - len(lines) - 2 * len(gap)
    for_events = min(len(told), max(3, left // 3))
    room = max(0, left - for_events - 1)
    if over and room >= 1:
        lines += [*gap, *table(_ENDED, over[:room], width, narrow=width < NARROW)]
    lines += [*gap, *told[:for_events]] if told else []
    leave = "q leave or stop" if frame.controls.owner else "q leave: the night continues"
    return text_page(lines, f"{leave}   ? help", width, height)


def _title(frame: NightPage, width: int) -> Text:
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
    return with_bar(line, over, config.iterations, width) if bar and config.iterations else line


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


def _worker_columns(frame: NightPage) -> tuple[Column, ...]:
    feed = frame.feed

    def live(work: IterationWork) -> Feed | None:
        return feed.batches.get(feed.place(work) or "")

    def of_lease(value: Callable[[WorkerLease], str]) -> Callable[[IterationWork], str]:
        return lambda work: value(work.lease) if work.lease is not None else NOTHING

    def trials(work: IterationWork) -> str:
        found = live(work)
        return found.state.total.progress if found is not None else NOTHING

    def passed(work: IterationWork) -> Text:
        return Text(NOTHING, "dim") if live(work) is None else counted(feed.tally_of(work).passed, "green")

    def running(work: IterationWork) -> list[LiveTrial]:
        found = live(work)
        return found.state.running if found is not None else []

    def last_beat(work: IterationWork) -> Text:
        beat = feed.beats.get((work.number, work.role))
        age = frame.now - beat.at if beat is not None else None
        text = f"{duration(max(0.0, age))} ago" if age is not None else NOTHING
        return Text(text, "bold red" if (age or 0) > 30 else "")

    def doing(work: IterationWork) -> str:
        beat = feed.beats.get((work.number, work.role))
        now = ", ".join(f"{trial.task} {trial.doing}" for trial in running(work))
        again = f"started {work.starts} times" if work.starts > 1 else ""
        return "; ".join(filter(None, (now or (str(beat.phase) if beat is not None else ""), again)))

    return (
        Column("worker", of_lease(lambda lease: str(lease.worker)), right=True),
        Column("iteration", _name, flexible=True, least=9),
        Column("trials", trials, right=True),
        Column("passed", passed, 2, "pass", right=True),
        Column("running", lambda work: str(len(running(work))), 3, "run", right=True),
        Column("for", of_lease(lambda lease: duration(frame.now - lease.beat_at)), 1, right=True),
        Column("last beat", last_beat, 1, "beat", right=True),
        Column("pid", of_lease(lambda lease: str(lease.pid)), 5, right=True),
        Column("doing", doing, 4, flexible=True),
    )


def _took(work: IterationWork) -> str:
    if work.started_at is None or work.finished_at is None:
        return NOTHING
    ended, began = datetime.fromisoformat(work.finished_at), datetime.fromisoformat(work.started_at)
    return duration((ended - began).total_seconds())


def _of_end(value: Callable[[WorkEnd], str]) -> Callable[[IterationWork], str]:
    return lambda work: value(work.end) if work.end is not None else NOTHING


def _why(work: IterationWork) -> str:
    return "" if work.status is IterationStatus.DONE else work.reason or ""


_ENDED = (
    Column("iteration", _name, flexible=True, least=9),
    Column("state", lambda work: Text(*_MARKS[work.status])),
    Column("measured", _of_end(lambda end: f"{end.measured}/{end.trials}"), 1, right=True),
    Column("passed", _of_end(lambda end: str(end.passed)), right=True),
    Column("cost", lambda work: dollars(work.end.cost_usd if work.end is not None else None), 3, right=True),
    Column("took", _took, 2, right=True),
    Column("why", _why, 4, flexible=True),
)


def total_line(feed: NightFeed) -> str:
    """Return how far a night is; of one that no process runs what its report says, in the same words."""
    if feed.summary is not None:
        return f"Ran: {ran(feed.summary)}"
    return f"{NightPage(feed).word}: {_progress(feed, 10_000, bar=False).plain}"


def event_line(event: NightEvent) -> str:
    """One thing that happened: when, and what."""
    about = f" [{event.workers} workers]" if event.kind is NightEventKind.SCALED and event.workers is not None else ""
    return clean(f"{event.time[11:19]}  {event.said}{about}")


def _event(event: NightEvent, width: int) -> Text:
    return Text(cut(event_line(event), width), _LOUD.get(event.kind, ""))
