"""The parts of the state of a batch (profiles, cells, jobs, trials), and the sums of trials by profile.

A trial counts for a cell by `first_verdicts` and `counting_order` of `terminalbench.index.queries`; what is over, and
what was run again on request without a verdict, was superseded: its cost counts, its result does not. A trial is taken
in or out in the same time, however many there are.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil

import msgspec

from terminalbench.experiments.plan import Plan
from terminalbench.index.queries import counting_order, first_verdicts, standing
from terminalbench.records.event import Progress
from terminalbench.records.trial import Outcome, Usage
from terminalbench.records.values import stamp
from terminalbench.text.names import named

MEASURED = (Outcome.PASSED.value, Outcome.FAILED.value)
OVER = tuple(outcome.value for outcome in Outcome if outcome.ended)
"""Endings that resume would not run again by itself."""

type TrialKey = tuple[str, str]
"""A job and the name of a trial in it."""
type TaskKey = tuple[str, str]
"""A dataset label and a task id."""


def seconds(text: str | None) -> float | None:
    """A time of an event or a result in seconds since the epoch; None when it cannot be read."""
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


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
    attempt: int | None = None
    at: Progress | None = None
    step_retries: int = 0
    told_retries: int = 0

    @property
    def doing(self) -> str:
        """Return what it does now: its phase, or where in its workflow it is."""
        return self.phase if self.at is None else str(self.at)

    @property
    def key(self) -> TrialKey:
        """Its job and name."""
        return (self.job, self.name)

    @property
    def begin(self) -> tuple[float, str, str]:
        """Return what puts trials in the order they started, an unknown start first: as the index orders them."""
        return (self.started or 0.0, self.name, self.job)

    @property
    def cost_usd(self) -> float | None:
        """Return what its ended tries cost; None when that is unknown of any."""
        costs = [usage.cost_usd if usage is not None else None for usage in self.tries.values()]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if costs and len(known) == len(costs) else None


class WaitingTrial(msgspec.Struct, frozen=True, omit_defaults=True):
    """A trial that waits: for what (`cause` is a `WaitKind`), and until when (UTC, ISO 8601), if that is known."""

    profile: str
    trial: str
    cause: str
    reason: str
    until: str | None = None

    def left_sec(self, now: float) -> float | None:
        """Seconds left at a time of day, None when that is not known."""
        until = seconds(self.until)
        return None if until is None else max(0.0, until - now)

    def moved(self, by_sec: float) -> "WaitingTrial":
        """The same when the time of day was set by so much."""
        until = seconds(self.until)
        if until is None:
            return self
        return msgspec.structs.replace(self, until=stamp(datetime.fromtimestamp(until + by_sec, UTC)))


class TimeAhead(msgspec.Struct, frozen=True):
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

    def changed(self, old: "TimeAhead", new: "TimeAhead") -> "TimeAhead":
        """The sum, with one of its parts replaced."""
        return TimeAhead(
            self.own_sec - old.own_sec + new.own_sec,
            self.task_sec - old.task_sec + new.task_sec,
            self.blind - old.blind + new.blind,
            self.same_sec - old.same_sec + new.same_sec,
            self.paced_sec - old.paced_sec + new.paced_sec,
        )


@dataclass
class LiveCell:
    """The trials of one profile on one task. `slots` are the planned attempts; None: unknown, there is no plan."""

    profile: str
    task: TaskKey
    slots: int | None
    excluded: bool = False
    ended: dict[TrialKey, LiveTrial] = field(default_factory=dict)
    over: int = 0
    seconds: float = 0.0
    timed: int = 0
    ahead: TimeAhead = field(default_factory=TimeAhead)

    @property
    def open(self) -> int:
        """Trials that are still to end."""
        return 0 if self.excluded or self.slots is None else max(0, self.slots - self.over)

    @property
    def mean_sec(self) -> float | None:
        """Mean time of its trials that ended."""
        return self.seconds / self.timed if self.timed else None


@dataclass
class LiveProfile:
    """One row of the table: counts over the trials that count, money over every try. `planned` None: unknown.

    `retries` are tries of whole trials, `step_retries` further attempts of a step within a workflow.
    """

    key: str
    free: bool = False
    planned: int | None = 0
    left_out: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    step_retries: int = 0
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
    ahead: TimeAhead = field(default_factory=TimeAhead)
    oracle: bool = False

    @property
    def label(self) -> str:
        """Return what it is called in a table."""
        return named(self.key, oracle=self.oracle)

    @classmethod
    def total(cls, profiles: Iterable["LiveProfile"]) -> "LiveProfile":
        """All profiles as one; what is planned is unknown when it is of any."""
        every = list(profiles)
        total = cls("total", free=bool(every) and all(profile.free for profile in every))
        for profile in every:
            known = total.planned is not None and profile.planned is not None
            total.planned = total.planned + profile.planned if known else None
            total.outcomes.update(profile.outcomes)
            total.errors.update(profile.errors)
            for name in _ADDED:
                setattr(total, name, getattr(total, name) + getattr(profile, name))
        return total

    @property
    def done(self) -> int:
        """Trials that ended and would not be run again by a resume."""
        return sum(self.outcomes[name] for name in OVER)

    @property
    def progress(self) -> str:
        """Return how many are done of how many: `13/36`, `13/?`."""
        return f"{self.done}/{'?' if self.planned is None else self.planned}"

    @property
    def counts(self) -> dict[str, int]:
        """Return how the trials that count ended, in the order of `Outcome`; what did not happen is left out."""
        return {outcome.value: self.outcomes[outcome] for outcome in Outcome if self.outcomes[outcome]}

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
    def spent_usd(self) -> float | None:
        """Return what is known to be spent; None when trials cost something and nothing is known of any."""
        return self.cost_usd if self.cost_known or not self.cost_unknown else None

    @property
    def mean_sec(self) -> float | None:
        """Mean time of a trial."""
        return self.seconds / len(self.durations) if self.durations else None

    @property
    def p90_sec(self) -> float | None:
        """The time that nine trials of ten stayed within."""
        return self.durations[ceil(0.9 * len(self.durations)) - 1] if self.durations else None

    def charge(self, usage: Usage | None, sign: int = 1) -> None:
        """Add (or with -1 take away) what a try cost."""
        cost, tokens = (usage.cost_usd, usage.total_tokens) if usage is not None else (None, None)
        if cost is not None:
            self.cost_usd += sign * cost
            self.cost_known += sign
        elif not self.free:
            self.cost_unknown += sign
        if tokens is not None:
            self.tokens += sign * tokens
            self.tokens_known += sign
        elif not self.free:
            self.tokens_unknown += sign

    def time(self, seconds: float, sign: int) -> None:
        """Take the time of a trial in, or with -1 out again."""
        if sign > 0:
            insort(self.durations, seconds)
        else:
            del self.durations[bisect_left(self.durations, seconds)]
        self.seconds = self.seconds + sign * seconds if self.durations else 0.0


_ADDED = (
    "left_out", "retries", "step_retries", "ended", "cost_usd", "cost_known", "cost_unknown", "tokens", "tokens_known",
    "tokens_unknown", "running", "seconds",
)  # fmt: skip


@dataclass
class LiveJob:
    """One Harbor job: what runs, waits and is held in it, until it is over."""

    name: str
    profile: str
    running: dict[str, LiveTrial] = field(default_factory=dict)
    waiting: dict[str, WaitingTrial] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    over: bool = False


@dataclass
class Tally:
    """The profiles and cells of one plan, or of none."""

    plan: Plan | None = None
    profiles: dict[str, LiveProfile] = field(default_factory=dict)
    by_task: dict[TaskKey, list[LiveCell]] = field(default_factory=dict)
    _cells: dict[tuple[str, str, str], LiveCell] = field(default_factory=dict)
    _run_again: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.plan is not None:
            self._run_again = frozenset(self.plan.superseded)
            self._plan_cells(self.plan)

    def _plan_cells(self, plan: Plan) -> None:
        free, excluded, oracles = plan.without_model(), plan.exclusions(), plan.oracles()
        for job in plan.jobs:
            profile = self.profiles.setdefault(job.profile, LiveProfile(job.profile, job.profile in free))
            profile.oracle = job.profile in oracles
            for task in job.tasks:
                attempts = job.attempts_of(task)
                cell = self._cell(job.profile, task.label, task.ref.id)
                cell.slots = (cell.slots or 0) + attempts
                cell.excluded = excluded(job.profile, task.ref) is not None
                if cell.excluded:
                    profile.left_out += attempts
                else:
                    profile.planned = (profile.planned or 0) + attempts

    def profile(self, key: str) -> LiveProfile:
        """The row of a profile; one the plan does not know gets one too."""
        if key not in self.profiles:
            self.profiles[key] = LiveProfile(key, planned=None)
        return self.profiles[key]

    def _cell(self, profile: str, dataset: str, task: str) -> LiveCell:
        key = (profile, dataset, task)
        cell = self._cells.get(key)
        if cell is None:
            # A planned cell gets its slots right after; one the plan does not know has none when there is a plan.
            cell = LiveCell(profile, (dataset, task), 0 if self.plan is not None else None)
            self._cells[key] = cell
            self.by_task.setdefault(cell.task, []).append(cell)
        return cell

    def count(self, trial: LiveTrial) -> None:
        """Take in a trial that has ended, in the place of another where only so many count."""
        if self._is_run_again(trial):
            return
        cell = self._cell(trial.profile, trial.dataset, trial.task)
        cell.ended[trial.key] = trial
        repeated = trial.attempt is not None and sum(one.attempt == trial.attempt for one in cell.ended.values()) > 1
        if not repeated and (cell.slots is None or len(cell.ended) <= cell.slots):
            self._add(cell, trial, 1)
            return
        started = sorted(cell.ended.values(), key=lambda one: one.begin)
        place, has_start = (lambda one: standing(one.outcome)), (lambda one: one.started is not None)
        first = first_verdicts(started, lambda one: one.attempt, place, has_start)
        ranked = counting_order(first.may_count, place, has_start)
        for one in [*first.again, *ranked[cell.slots :]]:
            self.uncount(one)
        for one in ranked[: cell.slots]:
            if not one.counted:
                self._add(cell, one, 1)

    def may_count(self, trial: LiveTrial) -> bool:
        """True when a trial stands for a planned one: not cut off, cancelled or run again."""
        return not (trial.lost or trial.outcome == Outcome.CANCELLED or self._is_run_again(trial))

    def _is_run_again(self, trial: LiveTrial) -> bool:
        """True when another counts in its place: a try with a verdict counts, though it was run again on request."""
        return trial.outcome not in MEASURED and f"{trial.job}/{trial.name}" in self._run_again

    def uncount(self, trial: LiveTrial) -> None:
        """Take a trial out, because it turned out otherwise or does not count any more."""
        if trial.counted:
            self._add(self._cell(trial.profile, trial.dataset, trial.task), trial, -1)

    def _add(self, cell: LiveCell, trial: LiveTrial, sign: int) -> None:
        profile, outcome = self.profile(trial.profile), trial.outcome or ""
        trial.counted = sign > 0
        profile.outcomes[outcome] += sign
        if outcome in OVER and outcome not in MEASURED:
            profile.errors[trial.error_class or outcome] += sign
        cell.over += sign if outcome in OVER else 0
        if cell.excluded:
            profile.planned = (profile.planned or 0) + sign
            profile.left_out -= sign
        if trial.duration is not None and outcome in OVER:
            cell.seconds += sign * trial.duration
            cell.timed += sign
            profile.time(trial.duration, sign)

    def look_ahead(self, task: TaskKey) -> None:
        """Keep the time that is still to come in the cells of a task."""
        for cell in self.by_task.get(task, []):
            others = self.others_sec(cell.profile, cell.task)
            if cell.mean_sec is not None:
                same = (cell.timed * others, cell.seconds) if others is not None else (0.0, 0.0)
                new = TimeAhead(cell.open * cell.mean_sec, same_sec=same[0], paced_sec=same[1])
            else:
                new = TimeAhead(blind=cell.open) if others is None else TimeAhead(task_sec=cell.open * others)
            profile = self.profile(cell.profile)
            profile.ahead = profile.ahead.changed(cell.ahead, new)
            cell.ahead = new

    def own_sec(self, profile: str, task: TaskKey) -> float | None:
        """Return what a task took a profile so far, on average."""
        cell = self._cells.get((profile, *task))
        return cell.mean_sec if cell is not None else None

    def others_sec(self, profile: str, task: TaskKey) -> float | None:
        """Return what a task took the other profiles, on average.

        An oracle says nothing about how long a task takes a model, nor a model about an oracle.
        """
        free = self.profile(profile).free
        cells = [c for c in self.by_task.get(task, []) if c.profile != profile and self.profile(c.profile).free == free]
        timed = sum(cell.timed for cell in cells)
        return sum(cell.seconds for cell in cells) / timed if timed else None
