"""What is persisted of a night: what was asked for, how far it is, what happened."""

from enum import StrEnum
from typing import Literal

import msgspec

from terminalbench.harbor.limits.clock import SharedClock
from terminalbench.runner.worktree import CodePin

RUN_LABEL, ITERATION_LABEL, ROLE_LABEL = "run", "iteration", "role"
"""The labels of a night's batches. They find the batch of an iteration again, whoever started it."""


class Role(StrEnum):
    """What a batch of a night is for."""

    ITERATION = "iteration"
    VALIDATION = "validation"


class Status(StrEnum):
    """How far an iteration is, in one role. `incomplete`: its batch has ended with trials that were not measured."""

    WAITING = "waiting"
    LEASED = "leased"
    DONE = "done"
    INCOMPLETE = "incomplete"
    GIVEN_UP = "given_up"

    @property
    def over(self) -> bool:
        """Whether nothing more happens to it in this night."""
        return self not in (Status.WAITING, Status.LEASED)


class NightModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of the models, and what its live check found before the night: digest, version, context, ..."""

    spec: str
    profile: str
    profile_id: str
    facts: dict[str, str] = {}


class NightConfig(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What was asked for. A resume goes on with this, never with the suite file."""

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
    budget_usd: float | None = None
    validation_rate: float = 0.0
    validation: NightModel | None = None
    validation_budget_usd: float | None = None
    validation_off: str | None = None
    ollama_endpoint: str | None = None
    project_root: str = ""


class Lease(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which process works on an iteration: enough to be sure, later, that it is the same one."""

    worker: int
    pid: int
    start_ticks: int | None
    host: str
    since: str
    beat_at: float


class Beat(msgspec.Struct, frozen=True, omit_defaults=True):
    """A heartbeat: written by a worker about once a second, while its loop goes round."""

    pid: int
    start_ticks: int | None
    at: float
    batch: str | None = None


class Work(msgspec.Struct, omit_defaults=True):
    """One iteration in one role: one batch, in the folder `batch` below `batches/`. `starts` counts its workers."""

    number: int
    role: Role
    seed: int
    status: Status = Status.WAITING
    batch: str | None = None
    starts: int = 0
    lease: Lease | None = None
    not_before: float | None = None
    reason: str | None = None
    killed_by: dict[str, int] = {}


class Quarantined(msgspec.Struct, frozen=True):
    """A task that no further iteration of this night runs."""

    task: str
    dataset: str
    reason: str


class NightState(msgspec.Struct, omit_defaults=True):
    """How far a night is. Its times are those of its clock."""

    run_id: str
    clock: SharedClock
    status: Literal["running", "finished", "stopped", "interrupted"] = "running"
    work: list[Work] = []
    quarantine: list[Quarantined] = []
    workers: int = 1
    deadline: float | None = None
    stopped: str | None = None


class Happening(StrEnum):
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
    """One thing that happened, with its cause in words."""

    time: str
    kind: Happening
    said: str = ""
    iteration: int | None = None
    role: Role | None = None
    worker: int | None = None
    pid: int | None = None
    workers: int | None = None
    cause: str | None = None
