"""The state of a running batch as pages show it, and threads share it; which of its planned trials run now."""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from terminalbench.experiments.batch import Batch
from terminalbench.index.queries import CellState
from terminalbench.index.totals import ProfileTotals
from terminalbench.live.feed import Feed
from terminalbench.live.forecast import eta_sec, waiting_lines
from terminalbench.live.model import LiveTrial
from terminalbench.live.notices import Alert
from terminalbench.live.status import Running, running_places
from terminalbench.records.trial import Outcome, TaskRef
from terminalbench.records.values import stamp
from terminalbench.text.outcomes import RUNNING

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


type Place = tuple[str, TaskRef, int]
"""A profile, a task and an attempt."""


def place(cell: CellState) -> Place:
    """Return which planned trial a cell stands for."""
    return (cell.profile, cell.task, cell.attempt)


def running_cells(cells: Sequence[CellState], running: Sequence[ShownTrial]) -> dict[Place, ShownTrial]:
    """The running trial of each cell that has one."""
    known = {f"{trial.job}/{trial.trial}": trial for trial in running}
    return {place(cells[at]): known[key] for at, key in running_places(cells, named(running)).items()}


def named(running: Iterable[ShownTrial]) -> Running:
    """Running trials by their folder."""
    return {f"{trial.job}/{trial.trial}": (trial.profile, trial.task) for trial in running}


def waits(cell: CellState) -> bool:
    """Return whether a cell of a live batch has simply not had its turn yet."""
    return cell.row is None and cell.outcome is Outcome.NOT_RUN and cell.reason is None


def outcome_bars(
    profiles: Iterable[ProfileTotals], cells: Iterable[CellState], running: Mapping[Place, ShownTrial]
) -> dict[str, dict[str, int]]:
    """Return how many trials of each profile ended how, or run."""
    bars = {totals.profile: Counter(totals.outcomes) for totals in profiles}
    for cell in cells if running else ():
        if place(cell) in running:
            bars[cell.profile][cell.outcome.value] -= 1
            bars[cell.profile][RUNNING] += 1
    return {profile: dict(counts) for profile, counts in bars.items()}
