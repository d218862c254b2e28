"""What is persisted of a night: what was asked for, how far it is, what happened; and its stop conditions.

Tasks that end workers are told apart from a machine that ends processes at random, and not run any more.
"""

import time
from collections.abc import Collection
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from terminalbench.harbor.limits.clock import SharedClock
from terminalbench.runner.worktree import CodePin

POISON_DEATHS = 2
"""A task that runs when so many workers in a row die, more often than all beside it, is not run any more."""
SURE_DEATHS = 3
"""The same whatever ran beside it."""
_CHANCE = 0.01
"""How likely it may be, at most, that the deaths in a row of a task came by chance, as those of the other tasks did."""

if TYPE_CHECKING:
    from terminalbench.campaign import GateStatus


class Suspects(msgspec.Struct, omit_defaults=True):
    """What workers ended on in a night, by task (`dataset/id`).

    `in_a_row` are workers that died while it ran, without a finished trial of it in between; `deaths` are all of them,
    `finished` the workers under which it came to an end; `lost` are the workers that died in all.
    """

    in_a_row: dict[str, int] = {}
    deaths: dict[str, int] = {}
    finished: dict[str, int] = {}
    lost: int = 0

    def worker_ended(self, finished: Collection[str]) -> None:
        """A worker has come to its end: whatever finished under it is innocent."""
        for task in finished:
            self.finished[task] = self.finished.get(task, 0) + 1
            self.in_a_row.pop(task, None)

    def worker_died(self, running: Collection[str], finished: Collection[str]) -> list[str]:
        """A worker has died while tasks were running: those that are to be left out from here on.

        Deaths count in a row: a machine that ends processes at random does so to all tasks alike, and they finish the
        next time. Two that ran side by side each time are told apart by running them alone. Where workers also die
        without the task, as many in a row must be unlikely at that rate.
        """
        self.worker_ended([task for task in finished if task not in running])
        self.lost += 1
        for task in set(running):
            self.in_a_row[task] = self.in_a_row.get(task, 0) + 1
            self.deaths[task] = self.deaths.get(task, 0) + 1
        worst = max((self.in_a_row[task] for task in running), default=0)
        of_worst = sorted({task for task in running if self.in_a_row[task] == worst})
        if worst < (POISON_DEATHS if len(of_worst) == 1 else SURE_DEATHS):
            return []
        poison = [task for task in of_worst if self._by_chance(task) < _CHANCE]
        for task in poison:
            del self.in_a_row[task]
        return poison

    def _by_chance(self, task: str) -> float:
        """Return how likely it is that some innocent task comes to so many deaths in a row, at the rate of the
        others."""
        without = self.lost - self.deaths[task]
        others = sum(count for name, count in self.finished.items() if name != task) + without
        rate = without / others if others else 0.0
        runs = others + self.deaths[task] + self.finished.get(task, 0)
        return min(1.0, runs * rate ** self.in_a_row[task])


RUN_LABEL, ITERATION_LABEL, ROLE_LABEL = "run", "iteration", "role"
"""The labels of a night's batches. They find the batch of an iteration again, whoever started it."""


class Role(StrEnum):
    """What a batch of a night is for."""

    ITERATION = "iteration"
    VALIDATION = "validation"


class IterationStatus(StrEnum):
    """How far an iteration is, in one role.

    `incomplete`: its batch has ended with trials that were not measured; a resume of the night tries them again.
    """

    WAITING = "waiting"
    LEASED = "leased"
    DONE = "done"
    INCOMPLETE = "incomplete"
    GIVEN_UP = "given_up"

    @property
    def over(self) -> bool:
        """Return whether nothing more happens to it in this night."""
        return self not in (IterationStatus.WAITING, IterationStatus.LEASED)


def iterations_said(done: int, over: int, planned: int | None) -> str:
    """Return how far the iterations of a night are: only those that were measured whole count as complete."""
    of = f" of {planned}" if planned is not None else ""
    rest = f", {over - done} incomplete" if over > done else ""
    return f"{done}{of} iterations{rest}"


class NightModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of the models, and what its live check found before the night: digest, version, context, ..."""

    spec: str
    profile: str
    profile_id: str
    facts: dict[str, str] = {}


class SuiteTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """One task of a suite. `digest` is of its files, where they are on this machine, else of its name alone."""

    id: str
    dataset: str
    digest: str
    name: str | None = None
    category: str | None = None
    difficulty: str | None = None
    timeout_sec: float | None = None


type LessonsMode = Literal["masked", "recall"]


class NightLessons(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a night learns: what its profiles with lessons may be shown, who reflects, and what that may cost.

    Without a `model` our own rules reflect.
    """

    mode: LessonsMode
    model: str | None = None
    budget_usd: float | None = None


class NightTraining(msgspec.Struct, frozen=True):
    """The training that a night ends with: its plan (a file), its name, and which of its nights this one is."""

    plan: str
    training: str
    night: int


class NightConfig(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What was asked for. A resume goes on with this, never with the suite file.

    `tasks` are those attempted, as `dataset/id`; `suite_tasks` are what the suite says of each. `until_said` are the
    words of `--until`, which mean another moment on another day.
    """

    run_id: str
    created_at: str
    suite: str
    suite_name: str
    suite_version: str
    suite_digest: str
    models: list[NightModel]
    tasks: list[str]
    iterations: int | None
    attempts: int
    seed: int
    workers: int | Literal["auto"]
    code: CodePin
    until: str | None = None
    until_said: str | None = None
    budget_usd: float | None = None
    validation_rate: float = 0.0
    validation: NightModel | None = None
    validation_budget_usd: float | None = None
    validation_off: str | None = None
    ollama_endpoint: str | None = None
    project_root: str = ""
    lessons: NightLessons | None = None
    learn: NightTraining | None = None
    suite_tasks: list[SuiteTask] = []
    command: str = "overnight"
    model_slots: int | None = None
    sandboxes: int | None = None
    executor: str | None = None
    ray_address: str | None = None

    @property
    def specs(self) -> list[str]:
        """The models as they were asked for, each once: one that learns has two profiles."""
        return list(dict.fromkeys(model.spec for model in self.models))


class WorkerLease(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which process works on an iteration: enough to be sure, later, that it is the same one."""

    worker: int
    pid: int
    start_ticks: int | None
    host: str
    since: str
    beat_at: float


class WorkerPhase(StrEnum):
    """What a worker does. It beats while it is `starting` or `running`; to start and to end it has a deadline too."""

    STARTING = "starting"
    RUNNING = "running"
    ENDING = "ending"
    ENDED = "ended"


class WorkEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker says when it has ended: its exit code, and the trials of its batch.

    `errors` are those that ended by the bench's fault and may be tried again; `cut_off` those that did not run for a
    reason that may pass by itself (a full disk, a signal). `closed`: nothing may start any more, by the gate or
    because a model or the pinned code has changed (`changed`: then what was asked for was not measured).
    """

    code: int
    trials: int = 0
    measured: int = 0
    passed: int = 0
    errors: int = 0
    cut_off: int = 0
    cost_usd: float | None = None
    closed: bool = False
    said: str | None = None
    changed: bool = False


class Death(msgspec.Struct, frozen=True):
    """A Harbor process that died under a worker. What it had not finished runs in another one."""

    profile: str
    cause: str


class Heartbeat(msgspec.Struct, frozen=True, omit_defaults=True):
    """A heartbeat: written by a worker about once a second, while its loop goes round. `at` is of the night's clock.

    `progress` counts what its trials did; `limit_sec` is the longest time that one of those that run may take. The
    events of its batch from byte `events_from` on are of its time. `deaths` are the Harbor processes that it has lost,
    each with its cause.
    """

    pid: int
    start_ticks: int | None
    at: float
    phase: WorkerPhase = WorkerPhase.STARTING
    batch: str | None = None
    events_from: int = 0
    progress: int = 0
    limit_sec: float = 0.0
    deaths: tuple[Death, ...] = ()
    end: WorkEnd | None = None


class IterationWork(msgspec.Struct, omit_defaults=True):
    """One iteration in one role: one batch, in the folder `batch` below `batches/`.

    `starts` counts its workers, `failures` those in a row that brought nothing, `rounds` how often its errors were
    tried again. `alone`: one trial at a time, to learn which task ends workers. `end` is what the last worker said.
    """

    number: int
    role: Role
    seed: int
    status: IterationStatus = IterationStatus.WAITING
    batch: str | None = None
    starts: int = 0
    failures: int = 0
    rounds: int = 0
    alone: bool = False
    lease: WorkerLease | None = None
    not_before: float | None = None
    reason: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    end: WorkEnd | None = None


class WithdrawnTask(msgspec.Struct, frozen=True):
    """A task that no further iteration of this night runs."""

    task: str
    dataset: str
    reason: str


class NightState(msgspec.Struct, omit_defaults=True):
    """How far a night is. Its times are those of its clock."""

    run_id: str
    clock: SharedClock
    status: Literal["running", "finished", "stopped", "interrupted"] = "running"
    work: list[IterationWork] = []
    quarantine: list[WithdrawnTask] = []
    suspects: Suspects = msgspec.field(default_factory=Suspects)
    workers: int = 1
    deadline: float | None = None
    stopped: str | None = None


class NightEventKind(StrEnum):
    """The kinds of events of a night."""

    STARTED = "night_started"
    RESUMED = "night_resumed"
    ENDED = "night_ended"
    WORKER_STARTED = "worker_started"
    WORKER_ENDED = "worker_ended"
    WORKER_LOST = "worker_lost"
    ITERATION_ENDED = "iteration_ended"
    QUARANTINED = "quarantined"
    SCALED = "scaled"
    INCIDENT = "incident"
    NOTE = "note"


class NightEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that happened, with its cause in words. A line whose time is none is no event, and counted as bad."""

    time: str
    kind: NightEventKind
    said: str = ""
    iteration: int | None = None
    role: Role | None = None
    worker: int | None = None
    pid: int | None = None
    workers: int | None = None
    cause: str | None = None

    def __post_init__(self) -> None:
        datetime.fromisoformat(self.time)


class StopCondition(Protocol):
    """A reason to begin no iteration any more: what runs may end, and the night is `stopped` and can be resumed."""

    def why(self, state: NightState, gate: "GateStatus", /) -> str | None:
        """Return the reason as the report states it; None while the night may go on. Asked once a round."""


class ClosedBatch:
    """A worker ended because its batch may start nothing any more."""

    def why(self, state: NightState, _gate: "GateStatus", /) -> str | None:
        """Return what the worker said."""
        return state.stopped


class ShutGate:
    """The deadline has come, the budget is used up, or a person has stopped the batches of the night."""

    def why(self, _state: NightState, gate: "GateStatus", /) -> str | None:
        """Return what the gate says."""
        return gate.shut


STOP_CONDITIONS: tuple[StopCondition, ...] = (ClosedBatch(), ShutGate())
"""The conditions of every night; the first that holds gives the reason."""


def why_stopped(state: NightState, gate: "GateStatus") -> str | None:
    """Return why a night begins no iteration any more, None while it does."""
    return next((why for one in STOP_CONDITIONS if (why := one.why(state, gate)) is not None), None)


def until_of(config: NightConfig) -> float | None:
    """The moment of `--until` by the wall clock."""
    return datetime.fromisoformat(config.until).timestamp() if config.until is not None else None


def put_up(gate: Path, config: NightConfig) -> None:
    """Put up the gate of a new night."""
    from terminalbench.harbor.limits.gate import share_gate

    until = until_of(config)
    share_gate(gate, config.budget_usd, None if until is None else until - time.time(), called="night")


def renew(gate: Path, config: NightConfig) -> None:
    """Bring the gate of a night that goes on to what it allows now."""
    from terminalbench.campaign import deadline_of
    from terminalbench.harbor.limits.gate import change_shared, read_shared

    now = read_shared(gate).clock.now()
    change_shared(gate, config.budget_usd, deadline_of(until_of(config), time.time(), now))
