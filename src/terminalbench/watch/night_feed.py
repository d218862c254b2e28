"""A night from its files, as it goes: its state, its events, the heartbeats and batches of its workers. Reads only."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from terminalbench.campaign.gate import GateStatus, standing
from terminalbench.errors import TbenchError
from terminalbench.experiments.batch import Batch
from terminalbench.json_files import decode_plain, read_json, tail_jsonl
from terminalbench.live.feed import Feed
from terminalbench.locks import living_owner
from terminalbench.overnight.crew import read_beat
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.night import Heartbeat, IterationWork, NightConfig, NightEvent, NightState, Role
from terminalbench.overnight.nights import LARGEST, config_of
from terminalbench.overnight.summary_model import NightSummary
from terminalbench.overnight.training_report import TrainedNight, read_trained, step_parts


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
