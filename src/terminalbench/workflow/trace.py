"""The trace of a guarded workflow: what happened, in order, one line each, written by the agent's process only.

`<trial>/workflow/trace.jsonl` is the one source of what a step did: results, live view, findings and error analysis
read it. Artifacts lie beside it, named by their content.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.files import write_bytes, write_text
from terminalbench.json_files import JsonLines, append_jsonl, decode_plain, read_jsonl, write_json
from terminalbench.records.trial import Usage
from terminalbench.records.values import stamp
from terminalbench.workflow.model import Artifact

FOLDER = "workflow"
"""The folder of a trial that holds all of it."""
ANSWER = "answer"
"""Stands for a guard where an answer was unusable: its form is checked before every guard."""
_LONGEST_OBJECT = 50_000_000
LARGE = 1_000_000
"""Letters from which on a patch is kept once: of a trial in its patch.diff, of an experiment in the predictions."""


def trace_file(trial: Path) -> Path:
    """The trace of a trial."""
    return trial / FOLDER / "trace.jsonl"


def object_file(trial: Path, artifact: str) -> Path:
    """An artifact of a trial."""
    return trial / FOLDER / "objects" / artifact[:2] / f"{artifact}.json"


def answer_file(trial: Path, name: str) -> Path:
    """Return what a model said that did not fit its form, as it was given."""
    return trial / FOLDER / "objects" / name[:2] / f"{name}.txt"


def patch_file(trial: Path) -> Path:
    """The patch that a trial left applied, as it was applied."""
    return trial / FOLDER / "patch.diff"


class TraceEventKind(StrEnum):
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
    """The reason why a step was given up."""

    RMAX = "rmax"
    FATAL = "fatal"
    ESCALATION_EXHAUSTED = "escalation_exhausted"


class WorkflowEnding(StrEnum):
    """The end of a workflow. Only `error` and `stopped` say nothing about the model."""

    DONE = "done"
    EXHAUSTED = "exhausted"
    FATAL = "fatal"
    TIME = "time"
    STOPPED = "stopped"
    ERROR = "error"


class TraceEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a trace. `number` counts from 1 without a gap; `cycle` counts the runs of a step from 1.

    run_start: `config` (digest of the workflow), `workflow`, `model`, `context` (hash). attempt: `attempt` from 1,
    `artifact` (None: the answer was unusable, `reason` says why), `rejected` (answers that did not fit, as they were
    given), its edges (`previous`, `uses`, `escalated_from`: see Artifact), `usage` of all requests, `tries`,
    `temperature` (None: the model's own), `duration_sec`. guard: `guard`, `passed`, `fatal`, `signature`, `feedback`,
    `parts` (the guards that a composite one asked, and whether each passed), `duration_sec`, `artifact`. step_pass:
    `artifact`. step_fail: `failure`, `guard`, `reason`. stagnation: `guard`, `signature`. escalate: `guard`, `targets`,
    `escalations` so far, `summary`. invalidate: `targets`. run_end: `ending`, `reason`, `step`, `guard`, `artifact`
    (the patch that is left: accepted, or the best at a time limit or with `submit_best`), `usage` of all.
    """

    number: int
    at: str
    kind: TraceEventKind
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
    ending: WorkflowEnding | None = None
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
    previous: str | None = None
    uses: Mapping[str, str] = msgspec.field(default_factory=dict)
    escalated_from: str | None = None
    parts: Mapping[str, bool] = msgspec.field(default_factory=dict)
    rejected: tuple[str, ...] = ()


def _utc() -> datetime:
    return datetime.now(UTC)


class Sink(ABC):
    """The receiver of what happens in a run: it numbers and stamps each event."""

    def __init__(self, now: Callable[[], datetime] = _utc, last: int = 0) -> None:
        self._now, self._last = now, last

    def write(self, kind: TraceEventKind, **fields: Any) -> TraceEvent:
        """Record that something happened; on disk when this returns."""
        event = TraceEvent(number=self._last + 1, at=stamp(self._now()), kind=kind, **fields)
        self.put(event)
        self._last = event.number
        return event

    @abstractmethod
    def put(self, event: TraceEvent) -> None:
        """Keep an event."""

    @abstractmethod
    def keep(self, artifact: Artifact) -> None:
        """Keep an artifact; one that is kept already stays as it is."""

    def keep_answer(self, text: str) -> str:
        """Keep an answer that did not fit its form: evidence, and never the work of a step. Its name is returned."""
        name = hashlib.sha256(text.encode()).hexdigest()
        self.put_answer(name, text)
        return name

    @abstractmethod
    def put_answer(self, name: str, text: str) -> None:
        """Keep such an answer under its name."""


class TraceFolder(Sink):
    """The trace in the folder of a trial. A further run in the same folder counts on from the last."""

    def __init__(self, trial: Path, now: Callable[[], datetime] = _utc) -> None:
        super().__init__(now, max((event.number for event in read_trace(trial).records), default=0))
        self._trial = trial

    def put(self, event: TraceEvent) -> None:
        append_jsonl(trace_file(self._trial), event)

    def keep(self, artifact: Artifact) -> None:
        file = object_file(self._trial, artifact.id)
        if not file.exists():
            write_json(file, artifact)

    def put_answer(self, name: str, text: str) -> None:
        write_text(answer_file(self._trial, name), text)

    def keep_applied(self, artifact: Artifact, begun: str, patch: bytes) -> None:
        """Keep the patch that was left applied. Of a large artifact only `begun` stays: its content, cut short."""
        write_bytes(patch_file(self._trial), patch)
        if len(artifact.content) > LARGE:
            left = msgspec.structs.replace(artifact, content=begun, letters=len(artifact.content))
            write_json(object_file(self._trial, artifact.id), left)


def read_trace(trial: Path) -> JsonLines:
    """The events of a trial's trace; a line that is still being written, or was torn by a crash, is left out."""
    return read_jsonl(trace_file(trial), TraceEvent)


def read_artifact(trial: Path, artifact: str) -> Artifact | None:
    """An artifact of a trial; None when it is not there, or cannot be read."""
    return decode_plain(object_file(trial, artifact), Artifact, _LONGEST_OBJECT)
