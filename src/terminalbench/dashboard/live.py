"""The state of a running batch as pages show it, and threads share it."""

import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from terminalbench.experiments.batch import Batch
from terminalbench.live.feed import Feed
from terminalbench.live.forecast import eta_sec
from terminalbench.live.line import waiting_lines
from terminalbench.live.model import LiveTrial
from terminalbench.live.notices import Alert
from terminalbench.records.values import stamp

_RECENT = 8
LISTED = 16
"""So many running trials are on the page of their batch, each with what it has used."""


@dataclass(frozen=True)
class ShownTrial:
    """A trial that runs (`phase`), or one that ended lately (`outcome`, and `at` when)."""

    profile: str
    task: str
    trial: str
    job: str
    phase: str | None
    started_at: str | None
    outcome: str | None = None
    at: str | None = None


@dataclass(frozen=True)
class ShownProfile:
    """How far one planned profile is."""

    profile: str
    planned: int
    done: int
    outcomes: dict[str, int]
    running: int


@dataclass(frozen=True)
class ShownState:
    """How far a batch is. `version` changes with every event that shows. None is unknown."""

    version: int
    planned: int | None
    done: int
    to_start: int | None
    profiles: list[ShownProfile]
    running: list[ShownTrial]
    recent: list[ShownTrial]
    cost_usd: float | None
    cost_unknown: int
    started_at: str | None
    left_sec: float | None
    alerts: list[Alert]
    waiting: list[str]


class LiveFeed:
    """Follows one batch for several threads."""

    def __init__(self, batch: Batch) -> None:
        self._feed = Feed(batch)
        self._lock = threading.Lock()

    def version(self) -> int:
        """A number that changes with everything that shows."""
        with self._lock:
            self._feed.read()
            return self._feed.version

    def runs(self, job: str, name: str) -> bool:
        """Return whether a trial is running."""
        with self._lock:
            self._feed.read()
            return any(trial.key == (job, name) for trial in self._feed.state.running)

    def shown(self) -> list[str]:
        """The running trials that the page of the batch lists, each as `<job>/<name>`."""
        with self._lock:
            return [f"{trial.job}/{trial.name}" for trial in self._feed.state.running[:LISTED]]

    def state(self, now: float) -> ShownState:
        """The state at a time of day."""
        with self._lock:
            self._feed.read()
            state, total = self._feed.state, self._feed.state.total
            return ShownState(
                version=self._feed.version,
                planned=total.planned,
                done=total.done,
                to_start=state.to_start,
                profiles=[
                    ShownProfile(p.key, p.planned, p.done, p.counts, p.running)
                    for p in state.profiles.values()
                    if p.planned is not None
                ],
                running=[_shown(trial) for trial in state.running],
                recent=[_shown(trial) for trial in list(state.finished)[: -_RECENT - 1 : -1]],
                cost_usd=total.spent_usd,
                cost_unknown=total.cost_unknown,
                started_at=_stamp(state.began),
                left_sec=eta_sec(state, now),
                alerts=state.alerts.worst_first(),
                waiting=[*state.limits.over, *waiting_lines(state, now), *state.limits.shared_lines],
            )


def _shown(trial: LiveTrial) -> ShownTrial:
    shown = ShownTrial(trial.profile, trial.task or "?", trial.name, trial.job, trial.doing, _stamp(trial.started))
    return shown if trial.outcome is None else replace(shown, phase=None, outcome=trial.outcome, at=_stamp(trial.ended))


def _stamp(seconds: float | None) -> str | None:
    return None if seconds is None else stamp(datetime.fromtimestamp(seconds, UTC))
