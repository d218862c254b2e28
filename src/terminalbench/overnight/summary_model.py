"""All that a night has to say: the content of `summary.json`, from which both reports are written.

`None` is unknown. Rates are fractions. Nothing in it tells when it was written: made again it is the same.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from terminalbench.json_files import read_json
from terminalbench.overnight.delta import TaskChange
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.iteration_results import IterationResults
from terminalbench.overnight.lessons_report import LessonsSummary
from terminalbench.overnight.model_summary import ModelSummary
from terminalbench.overnight.night import IterationStatus, NightConfig, NightEvent, NightEventKind, Role, WithdrawnTask
from terminalbench.overnight.validation import Validation
from terminalbench.records.counts import Counts
from terminalbench.records.trial import Outcome
from terminalbench.text.numbers import cost, duration, plural
from terminalbench.text.table import Columns

COMPARISONS = Columns[tuple[str, str, str]](
    {"part": lambda one: one[0], "profile": lambda one: one[1], "outcome": lambda one: one[2]}
)


class TrainingStep(msgspec.Struct, frozen=True, kw_only=True):
    """How far a night of a training is: the part that runs, its share of the night, trials done of at most so many.

    `ran` of them ended since `began`, a moment of the wall clock: what was done before a kill took no time now.
    """

    nights: int
    part: str
    share: float
    trials: int
    done: int
    ran: int
    began: float

    def left_sec(self, now: float) -> float | None:
        """Return how long it takes at most, by the trials so far; None while none has ended."""
        return (now - self.began) / self.ran * (self.trials - self.done) if self.ran else None


class TrainedNight(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One night of a training. `lines` say outcome, `comparisons` are all that were declared.

    `stopped` is why it is not over, `cost_usd` what it has cost so far, and `step` where it is while it runs.
    `waits` names the challenger that waits for its turn, and the command for it. `answer` says whether it got better,
    `trials` how many were run.
    """

    training: str
    night: int
    lines: list[str]
    comparisons: list[tuple[str, str, str]] = []
    cost_usd: float | None = None
    cost_unknown: int = 0
    stopped: str | None = None
    step: TrainingStep | None = None
    waits: str | None = None
    answer: str | None = None
    trials: int = 0


def read_trained(folder: NightFolder) -> TrainedNight | None:
    """Return what was trained in a night; None where nothing was, or not yet."""
    return read_json(folder.training_json, TrainedNight) if folder.training_json.is_file() else None


def training_stopped(folder: NightFolder, config: NightConfig) -> str | None:
    """Return why the training that a night ends with is not over; None where it is, or there is none."""
    if config.learn is None:
        return None
    found = read_trained(folder)
    return found.stopped if found is not None else "its training has not started"


def step_parts(found: TrainedNight, now: float) -> list[str]:
    """Return where a training is while it runs: its night, the part and its share, trials, cost, time left; else
    nothing."""
    step = found.step
    if step is None:
        return []
    left = step.left_sec(now)
    return [
        f"training {found.training}, night {found.night} of {step.nights}",
        f"{step.part} ({round(100 * step.share)} %)",
        f"{step.done} of {plural(step.trials, 'trial')}",
        cost(found.cost_usd, found.cost_unknown) if found.cost_usd or found.cost_unknown else "",
        f"at most {duration(left)} left" if left is not None else "",
    ]


def step_line(found: TrainedNight, now: float) -> str | None:
    """The same in one line; None where it does not run."""
    return ", ".join(filter(None, step_parts(found, now))) or None


_POINTS = 200
"""Points of the spend that are kept; the last is always one of them."""


class WorkerSpan(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A worker at an iteration; without `ended_at` it works still. `lost`: it died, or was ended by its supervisor."""

    worker: int
    started_at: str
    iteration: int | None = None
    role: Role | None = None
    ended_at: str | None = None
    lost: bool = False


class SpendPoint(msgspec.Struct, frozen=True):
    """What the trials that had ended by then cost, as far as it is known."""

    time: str
    cost_usd: float


class NightTimeline(msgspec.Struct, frozen=True, omit_defaults=True):
    """The times of a night. The spend is that of the trials of its iterations."""

    workers: list[WorkerSpan] = []
    spend: list[SpendPoint] = []


def timeline_of(events: Sequence[NightEvent], iterations: Iterable[IterationResults]) -> NightTimeline:
    """Return the times of a night, from its events and the results of its iterations."""
    return NightTimeline(_workers(events), _spend(iterations))


def _workers(events: Sequence[NightEvent]) -> list[WorkerSpan]:
    """A supervisor that was killed wrote no end of its workers: the last thing that it did write is theirs."""
    found: list[WorkerSpan] = []
    open_: dict[int, int] = {}

    def end(worker: int | None, at: str | None, *, lost: bool = False) -> None:
        place = open_.get(worker) if worker is not None else None
        if place is None or worker is None:
            return
        span = found[place]
        found[place] = msgspec.structs.replace(span, ended_at=at or span.ended_at, lost=lost or span.lost)
        if at is not None:
            del open_[worker]

    before = ""
    for event in events:
        match event.kind:
            case NightEventKind.WORKER_STARTED if event.worker is not None:
                open_[event.worker] = len(found)
                span = WorkerSpan(
                    worker=event.worker, started_at=event.time, iteration=event.iteration, role=event.role
                )
                found.append(span)
            case NightEventKind.WORKER_LOST:
                end(event.worker, None, lost=True)
            case NightEventKind.WORKER_ENDED:
                end(event.worker, event.time)
            case NightEventKind.RESUMED:
                for worker in list(open_):
                    end(worker, before, lost=True)
            case NightEventKind.ENDED:
                for worker in list(open_):
                    end(worker, event.time)
            case _:
                pass
        before = event.time
    return found


def _spend(iterations: Iterable[IterationResults]) -> list[SpendPoint]:
    trials = [trial for each in iterations for one in each.profiles for task in one.tasks for trial in task.trials]
    known = [(one.finished_at, one.cost_usd) for one in trials if one.finished_at and one.cost_usd is not None]
    spent, found = 0.0, []
    for at, cost_usd in sorted(known, key=lambda one: (datetime.fromisoformat(one[0]), one[1])):
        spent += cost_usd
        found.append(SpendPoint(at, round(spent, 6)))
    every = 1 + len(found) // _POINTS
    return found[:-1:every] + found[-1:]


CUT_OFF = "cut off"
"""The status of a night that says it runs while no process does: its supervisor was killed."""


def model_name(model: str, profile: str, *, simulated: bool) -> str:
    """A model as it is shown: by its profile where that has a name of its own; one that only plays its part says so."""
    own = re.sub(r"[^a-z0-9]+", "-", model.lower()) != re.sub(r"[^a-z0-9]+", "-", profile.lower())
    played = ["simulated"] if simulated and "simulated" not in model else []
    about = ", ".join([*([model] if own else []), *played])
    name = profile if own else model
    return f"{name} ({about})" if about else name


class IterationRate(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One profile in one iteration; `since` is what its delta says of the tasks."""

    profile: str
    total: int
    passed: int
    measured: int
    errored: int
    not_run: int
    pass_rate: float | None
    coverage: float | None
    cost_usd: float | None
    cost_unknown: int
    since: str
    alert: str | None = None
    no_model: bool = False


class IterationLine(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One iteration: how far it is, and what it measured so far. `starts` counts the workers it took."""

    number: int
    status: IterationStatus | None = None
    reason: str | None = None
    batch: str | None = None
    starts: int = 0
    started_at: str | None = None
    finished_at: str | None = None
    profiles: list[IterationRate] = []


class Flip(msgspec.Struct, frozen=True, kw_only=True):
    """A task that came to something else than in the iteration before, with the trials that show it."""

    iteration: int
    previous: int
    profile: str
    task_id: str
    dataset: str
    change: TaskChange
    noise: bool
    before: Counts
    now: Counts
    trials_before: list[str]
    trials: list[str]


class Incident(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Something that went wrong or was put right, and why."""

    time: str
    kind: NightEventKind
    said: str
    cause: str | None = None
    iteration: int | None = None
    worker: int | None = None


class Scaling(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The number of workers changed."""

    time: str
    workers: int | None
    said: str


class LostTrials(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Trials of a profile that were not measured for one reason, their tasks, and one of them."""

    profile: str
    count: int
    outcome: Outcome
    reason: str
    error_class: str | None = None
    iteration: int | None = None
    trial: str | None = None
    tasks: list[str] = []


class NightSummary(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """`summary.json`. `status` is that of the night; `cut off`: it says that it runs, and no process does."""

    run_id: str
    suite: str
    suite_name: str
    suite_version: str
    suite_digest: str
    created_at: str
    status: str
    stopped: str | None
    iterations_planned: int | None
    attempts: int
    seed: int
    workers: str
    until: str | None
    budget_usd: float | None
    code: str
    cost_usd: float | None
    cost_unknown: int
    headlines: list[str]
    models: list[ModelSummary]
    iterations: list[IterationLine]
    alerts: list[str]
    alert_rule: str
    flips: list[Flip]
    incidents: list[Incident]
    scaling: list[Scaling]
    workers_started: int
    quarantined: list[WithdrawnTask]
    lost: list[LostTrials]
    crashed: int = 0
    """Trials that failed because their agent crashed."""
    next_steps: list[str]
    validation: Validation | None = None
    lessons: LessonsSummary | None = None
    training: TrainedNight | None = None
    problems: list[str] = []
    timeline: NightTimeline | None = None
    schema_version: int = 1

    @property
    def total(self) -> int:
        """Trials of all iterations that have a batch."""
        return sum(model.total for model in self.models)

    @property
    def measured(self) -> int:
        """Those with a verdict."""
        return sum(model.measured for model in self.models)

    @property
    def passed(self) -> int:
        """Those that passed."""
        return sum(model.passed for model in self.models)

    @property
    def done(self) -> int:
        """Iterations that were measured whole."""
        return sum(line.status is IterationStatus.DONE for line in self.iterations)

    @property
    def over(self) -> int:
        """Iterations to which nothing more happens."""
        return sum(line.status is not None and line.status.over for line in self.iterations)
