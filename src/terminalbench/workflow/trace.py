"""The trace of a guarded workflow: what happened, in order, one line each, written by the agent's process only.

`<trial>/workflow/trace.jsonl` is the one source of what a step did: results, live view, findings and error analysis
read it. Artifacts lie beside it, named by their content.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import msgspec

from terminalbench.records import Usage

FOLDER = "workflow"
"""The folder of a trial that holds all of it."""


def trace_file(trial: Path) -> Path:
    """The trace of a trial."""
    return trial / FOLDER / "trace.jsonl"


def object_file(trial: Path, artifact: str) -> Path:
    """An artifact of a trial."""
    return trial / FOLDER / "objects" / artifact[:2] / f"{artifact}.json"


def patch_file(trial: Path) -> Path:
    """The patch that a trial left applied, as it was applied."""
    return trial / FOLDER / "patch.diff"


class Happened(StrEnum):
    """The kinds of trace events."""

    RUN_START = "run_start"
    STEP_START = "step_start"
    ATTEMPT = "attempt"
    GUARD = "guard"
    STEP_PASS = "step_pass"  # noqa: S105  no password
    STEP_FAIL = "step_fail"
    STAGNATION = "stagnation"
    ESCALATE = "escalate"
    INVALIDATE = "invalidate"
    RUN_END = "run_end"


class StepFailure(StrEnum):
    """Why a step was given up."""

    RMAX = "rmax"
    FATAL = "fatal"
    ESCALATION_EXHAUSTED = "escalation_exhausted"


class Ending(StrEnum):
    """How a workflow ended. Only `error` and `stopped` say nothing about the model."""

    DONE = "done"
    EXHAUSTED = "exhausted"
    FATAL = "fatal"
    TIME = "time"
    STOPPED = "stopped"
    ERROR = "error"


class TraceEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a trace. `number` counts from 1 without a gap; `cycle` counts the runs of a step from 1.

    run_start: `config` (digest of the workflow), `workflow`, `model`, `context` (hash). attempt: `attempt` from 1,
    `artifact` (None: the answer was unusable, `reason` says why), `usage` of all requests, `tries`, `temperature`,
    `duration_sec`. guard: `guard`, `passed`, `fatal`, `signature`, `feedback`, `duration_sec`. step_fail: `failure`.
    stagnation: `guard`, `signature`. escalate: `targets`, `escalations` so far, `summary`. invalidate: `targets`.
    run_end: `ending`, `reason`, `step`, `guard`, `artifact` (the patch that is applied), `usage` of all.
    """

    number: int
    at: str
    kind: Happened
    step: str | None = None
    cycle: int | None = None
    attempt: int | None = None
    artifact: str | None = None
    guard: str | None = None
    passed: bool | None = None
    fatal: bool = False
    signature: str | None = None
    feedback: str | None = None
    failure: StepFailure | None = None
    targets: tuple[str, ...] = ()
    escalations: int | None = None
    summary: str | None = None
    ending: Ending | None = None
    reason: str | None = None
    usage: Usage | None = None
    tries: int | None = None
    temperature: float | None = None
    duration_sec: float | None = None
    workflow: str | None = None
    config: str | None = None
    model: str | None = None
    context: str | None = None
    oracle: bool = False
    limits: Mapping[str, float] = msgspec.field(default_factory=dict)
