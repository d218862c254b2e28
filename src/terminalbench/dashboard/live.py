"""The live state of a running batch, from its events alone: read once, then only what was appended."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import Plan
from terminalbench.files import tail_jsonl
from terminalbench.index.queries import plan_or_none
from terminalbench.live.alerts import Standing
from terminalbench.live.progress import Progress
from terminalbench.records import Event

_RECENT = 8
_ENDINGS = ("trial_ended", "trial_cancelled", "trial_held")


@dataclass(frozen=True)
class RunningTrial:
    """A trial that runs now."""

    profile: str
    task: str
    trial: str
    job: str
    phase: str
    started_at: str


@dataclass(frozen=True)
class EndedTrial:
    """A trial that ended lately."""

    profile: str
    task: str
    trial: str
    job: str
    outcome: str
    at: str


@dataclass(frozen=True)
class LiveProfile:
    """How far one profile is."""

    profile: str
    planned: int
    done: int
    outcomes: dict[str, int]
    running: int


@dataclass(frozen=True)
class LiveState:
    """How far a batch is. `version` changes with every event that shows."""

    version: int
    planned: int
    done: int
    profiles: list[LiveProfile]
    running: list[RunningTrial]
    recent: list[EndedTrial]
    cost_usd: float | None
    cost_unknown: int
    started_at: str | None
    alerts: list[Standing]
    waiting: list[str]


class Forecast(Protocol):
    """Told of the plan and of every event, it says how long a batch still takes; None: that is not known."""

    def replan(self, plan: Plan | None) -> None: ...
    def apply(self, event: Event) -> None: ...
    def left_sec(self, now: float) -> float | None: ...


class LiveFeed:
    """Follows the events of one batch; `forecast` makes what says how long it still takes."""

    def __init__(self, batch: Batch, forecast: Callable[[], Forecast] | None = None) -> None:
        self._batch = batch
        self._new_forecast = forecast
        self._forecast = forecast() if forecast is not None else None
        self._lock = threading.Lock()
        self._offset = 0
        self._version = 0
        self._started_at: str | None = None
        self._running: dict[str, RunningTrial] = {}
        self._recent: deque[EndedTrial] = deque(maxlen=_RECENT)
        self._plan: Plan | None = None
        self._plan_stamp: tuple[int, int, int] | None = None
        self._progress = Progress.of_jobs((), time.time())

    def state(self) -> LiveState:
        """The state now."""
        with self._lock:
            self._read_plan()
            lines = tail_jsonl(self._batch.events_jsonl, self._offset, Event)
            if lines.offset < self._offset:  # replaced: what it held is counted again
                self._progress = self._begin()
                self._running.clear()
                if self._new_forecast is not None:
                    self._forecast = self._new_forecast()
                    self._forecast.replan(self._plan)
            self._offset = lines.offset
            for event in lines.records:
                self._add(event)
            return self._state()

    def left_sec(self, now: float) -> float | None:
        """How long the batch still takes, as far as it was read; None: that is not known."""
        with self._lock:
            return self._forecast.left_sec(now) if self._forecast is not None else None

    def _begin(self) -> Progress:
        now = time.time()
        return Progress.of_plan(self._plan, now) if self._plan is not None else Progress.of_jobs((), now)

    def _read_plan(self) -> None:
        """The plan, when it is new: a resume or a top-up makes it grow, and says what is run again."""
        try:
            status = self._batch.plan_json.stat()
        except OSError:
            return
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        plan = plan_or_none(self._batch) if stamp != self._plan_stamp else None
        if plan is None:
            return
        self._plan, self._plan_stamp = plan, stamp
        self._progress.replan(plan)
        if self._forecast is not None:
            self._forecast.replan(plan)
        self._version += 1

    def _add(self, event: Event) -> None:
        self._progress.add(event)
        if self._forecast is not None:
            self._forecast.apply(event)
        if event.kind == "note" and "resumed" in event.detail:
            self._running.clear()
            self._started_at = None
        if event.kind == "job_ended" or event.names_a_death:
            self._running = {name: trial for name, trial in self._running.items() if trial.job != event.job}
        if event.kind != "heartbeat":
            self._version += 1
        if event.kind == "job_started" and self._started_at is None:
            self._started_at = event.time
        if event.trial is None:
            return
        name = f"{event.job}/{event.trial}"
        if event.kind in ("trial_started", "trial_phase"):
            since = self._running[name].started_at if name in self._running else event.time
            phase = event.phase or "starting"
            self._running[name] = RunningTrial(
                event.profile or "?", event.task or "?", event.trial, event.job, phase, since
            )
        elif event.kind in _ENDINGS:
            self._running.pop(name, None)
            if event.kind == "trial_ended":
                ended = EndedTrial(
                    event.profile or "?",
                    event.task or "?",
                    event.trial,
                    event.job,
                    event.outcome or "errored",
                    event.time,
                )
                self._recent.appendleft(ended)

    def _state(self) -> LiveState:
        progress = self._progress
        profiles = [
            LiveProfile(
                name,
                planned,
                progress.ended.done(name),
                {outcome: count for outcome, count in progress.ended.outcomes[name].items() if count},
                sum(trial.profile == name for trial in self._running.values()),
            )
            for name, planned in progress.ended.planned.items()
        ]
        return LiveState(
            version=self._version,
            planned=progress.total,
            done=progress.done,
            profiles=profiles,
            running=sorted(self._running.values(), key=lambda trial: trial.started_at),
            recent=list(self._recent),
            cost_usd=progress.spent_usd,
            cost_unknown=progress.cost_unknown,
            started_at=self._started_at,
            alerts=sorted(progress.alerts.standing.values(), key=lambda alert: alert.severity != "error"),
            waiting=progress.waiting_lines(),
        )
