"""The lifecycle of jobs and trials, as `events.jsonl` holds it."""

import os
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec

from terminalbench.records.trial import Usage
from terminalbench.records.values import stamp


class EventKind(StrEnum):
    """The kinds of events. A file of another version may hold further kinds: they are shown as they are."""

    JOB_STARTED = "job_started"
    JOB_ENDED = "job_ended"
    JOB_DIED = "job_died"
    RESUMED = "resumed"
    TRIAL_WAITING = "trial_waiting"
    TRIAL_STARTED = "trial_started"
    TRIAL_HELD = "trial_held"
    TRIAL_PHASE = "trial_phase"
    TRIAL_ENDED = "trial_ended"
    TRIAL_CANCELLED = "trial_cancelled"
    HEARTBEAT = "heartbeat"
    CONTROL = "control"
    ALERT = "alert"
    NOTE = "note"


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The place of a running trial in its workflow: step, attempt of the cycle, cycle of the step, both from 1.

    `retries` are the attempts so far that were not the first of their step in a cycle.
    """

    step: str
    attempt: int
    cycle: int
    retries: int = 0

    def __str__(self) -> str:
        return f"{self.step}, attempt {self.attempt}, cycle {self.cycle}"


COMPLETED_JOB = "completed"
"""`how` a job has ended whose Harbor process came to its end."""


HUNG_JOB = "hung"
"""`how` a job has ended whose Harbor process had to end because a trial in it could not be: nothing of it broke."""


BLOCKED = "blocked_sec"
"""In the detail of a heartbeat: for how long Harbor's event loop had not answered."""


class WaitKind(StrEnum):
    """The causes for which a trial that has not started waits."""

    RATE_LIMIT = "rate_limit"
    RETRY = "retry"
    PAUSED = "paused"
    PARALLEL = "parallel"
    BUDGET = "budget"
    """What running trials hold of the budget."""
    FIRST_COST = "first_cost"
    """The first known cost of its profile: until then one trial runs at a time."""
    SHARE = "share"
    """What other profiles leave of their shares of the budget."""


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of `events.jsonl`: something happened to a job or a trial. `time` is UTC, ISO 8601.

    `job_died` is the supervisor's: the Harbor process of a job ended before its job did, with `code` in `detail`.
    A waiting trial says in `error` what it waits for, and in `detail` the `cause` (a `WaitKind`) and `until` when; a
    held one never starts. `control` is an order to the live run with its reason in `error`
    and `action`, `target` and `by` in `detail`; `done` when a trial was ended by it. `alert` is the watchdog's: `error`
    is its message, `detail` its `cause`, `severity` (warning, error), `message`, `since`,
    and `state` (raised, cleared). `resumed` says how many trials of each profile a resume runs, in `detail`. `clock` is
    in seconds of the machine's boot (which `job_started` names in `detail`): setting the time does not move it.
    """

    time: str
    kind: str
    job: str
    pid: int
    profile: str | None = None
    trial: str | None = None
    task: str | None = None
    dataset: str | None = None
    attempt: int | None = None
    phase: str | None = None
    outcome: str | None = None
    reward: float | None = None
    error: str | None = None
    usage: Usage | None = None
    detail: dict[str, Any] = {}
    clock: float | None = None

    @classmethod
    def now(cls, kind: str, job: str = "", pid: int | None = None, **fields: Any) -> "Event":
        """An event that happens now, in this process unless `pid` is given."""
        return cls(stamp(datetime.now(UTC)), kind, job, os.getpid() if pid is None else pid, **fields)

    @property
    def job_died(self) -> bool:
        """True when the job's Harbor process died. Before there was a kind for it, that was a note with a code."""
        return self.kind == EventKind.JOB_DIED or (self.kind == EventKind.NOTE and "code" in self.detail)

    @property
    def resumed(self) -> dict[str, int] | None:
        """The trials of each profile that a resume runs; None for other events. An earlier version wrote a note."""
        told = self.detail.get("resumed") if self.kind in (EventKind.RESUMED, EventKind.NOTE) else None
        return told if isinstance(told, dict) else None
