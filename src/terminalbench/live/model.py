"""What the live view knows: profiles, cells, jobs, trials. Filled by `terminalbench.live.state` and `tally`."""

from bisect import bisect_left, insort
from collections import Counter, deque
from dataclasses import dataclass, field
from math import ceil

import msgspec

from terminalbench.records import Outcome, Usage

MEASURED = (Outcome.PASSED.value, Outcome.FAILED.value)
OVER = (*MEASURED, Outcome.TIMED_OUT.value, Outcome.ERRORED.value)
"""Endings that resume would not run again by itself."""

KEPT_FINISHED = 100

type TrialKey = tuple[str, str]
"""A job and the name of a trial in it."""
type TaskKey = tuple[str, str]
"""A dataset label and a task id."""


class LiveTrial(msgspec.Struct):
    """One trial as its events tell it. Times are seconds since the epoch; `tries` are the usages of ended tries."""

    job: str
    name: str
    profile: str
    task: str
    dataset: str
    started: float | None = None
    phase: str = "starting"
    last: float | None = None
    ended: float | None = None
    outcome: str | None = None
    error_class: str | None = None
    error: str | None = None
    duration: float | None = None
    retries: int = 0
    tries: dict[int, Usage | None] = msgspec.field(default_factory=dict)
    counted: bool = False
    lost: bool = False

    @property
    def key(self) -> TrialKey:
        """Its job and name."""
        return (self.job, self.name)

    @property
    def cost_usd(self) -> float | None:
        """What its ended tries cost; None when that is unknown of any."""
        costs = [usage.cost_usd if usage is not None else None for usage in self.tries.values()]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if costs and len(known) == len(costs) else None


class Forecast(msgspec.Struct, frozen=True):
    """The time still to come in a cell, or in several.

    `own_sec` by the cell's own trials, `task_sec` by those of the task in other profiles; `blind` trials of which
    nothing is known. `same_sec` is what the trials that ended and that other profiles can be compared on would have
    taken those, `paced_sec` what they took.
    """

    own_sec: float = 0.0
    task_sec: float = 0.0
    blind: int = 0
    same_sec: float = 0.0
    paced_sec: float = 0.0

    def changed(self, old: "Forecast", new: "Forecast") -> "Forecast":
        """The sum, with one of its parts replaced."""
        return Forecast(
            self.own_sec - old.own_sec + new.own_sec,
            self.task_sec - old.task_sec + new.task_sec,
            self.blind - old.blind + new.blind,
            self.same_sec - old.same_sec + new.same_sec,
            self.paced_sec - old.paced_sec + new.paced_sec,
        )


@dataclass
class LiveCell:
    """The trials of one profile on one task. `slots` are the planned attempts; None: nobody knows."""

    profile: str
    task: TaskKey
    slots: int | None
    excluded: bool = False
    ended: dict[TrialKey, LiveTrial] = field(default_factory=dict)
    over: int = 0
    seconds: float = 0.0
    timed: int = 0
    forecast: Forecast = field(default_factory=Forecast)

    @property
    def open(self) -> int:
        """Trials that are still to end."""
        return 0 if self.excluded or self.slots is None else max(0, self.slots - self.over)


@dataclass
class LiveProfile:
    """One row of the table: counts over the trials that count, money over every try."""

    key: str
    free: bool = False
    planned: int | None = 0
    left_out: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    ended: int = 0
    cost_usd: float = 0.0
    cost_known: int = 0
    cost_unknown: int = 0
    tokens: int = 0
    tokens_known: int = 0
    tokens_unknown: int = 0
    durations: list[float] = field(default_factory=list)
    seconds: float = 0.0
    running: int = 0
    peak: int = 0
    forecast: Forecast = field(default_factory=Forecast)

    @property
    def done(self) -> int:
        """Trials that ended and would not be run again by a resume."""
        return sum(self.outcomes[name] for name in OVER)

    @property
    def measured(self) -> int:
        """Trials with a verdict."""
        return sum(self.outcomes[name] for name in MEASURED)

    @property
    def broken(self) -> int:
        """Trials that are done without one. Cancelled ones are not done: a resume runs them again."""
        return self.done - self.measured

    @property
    def superseded(self) -> int:
        """Trials that ended and count for nothing: others were run in their place."""
        return self.ended - self.outcomes.total()

    @property
    def mean_sec(self) -> float | None:
        """Mean time of a trial."""
        return self.seconds / len(self.durations) if self.durations else None

    @property
    def p90_sec(self) -> float | None:
        """The time that nine trials of ten stayed within."""
        return self.durations[ceil(0.9 * len(self.durations)) - 1] if self.durations else None

    def add_duration(self, seconds: float) -> None:
        """Take the time of a trial in."""
        insort(self.durations, seconds)
        self.seconds += seconds

    def drop_duration(self, seconds: float) -> None:
        """Take it out again."""
        del self.durations[bisect_left(self.durations, seconds)]
        self.seconds = self.seconds - seconds if self.durations else 0.0


@dataclass
class LiveJob:
    """One Harbor job: what runs and what is held in it, until it is over."""

    name: str
    profile: str
    running: dict[str, LiveTrial] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    over: bool = False


@dataclass
class Records:
    """The parts of a state that hold one entry per thing seen."""

    trials: dict[TrialKey, LiveTrial] = field(default_factory=dict)
    jobs: dict[str, LiveJob] = field(default_factory=dict)
    finished: deque[LiveTrial] = field(default_factory=lambda: deque(maxlen=KEPT_FINISHED))
    places: dict[tuple[str, str, str], list[LiveTrial]] = field(default_factory=dict)
