"""Traces of guarded workflows, written as a few words; and trials that hold them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.json_files import encode_line
from terminalbench.records.trial import Usage
from terminalbench.workflow.model import Artifact, Kind
from terminalbench.workflow.trace import (
    StepFailure,
    TraceEvent,
    TraceEventKind,
    WorkflowEnding,
    object_file,
    patch_file,
    trace_file,
)

KINDS = {"analysis": Kind.ANALYSIS, "test": Kind.TEST, "patch": Kind.PATCH}
PATCH = "--- a/calc.py\n+++ b/calc.py\n@@ -1 +1 @@\n-bad\n+good\n"


class Script:
    """Builds the trace of a run, and the artifacts it names. Every attempt is answered with 100 + 10 tokens, $0.01."""

    def __init__(self, workflow: str = "s1_tdd", model: str = "scripted", *, oracle: bool = False) -> None:
        self.events: list[TraceEvent] = []
        self.artifacts: dict[str, Artifact] = {}
        self.current: dict[str, str] = {}
        self.add(
            TraceEventKind.RUN_START, workflow=workflow, config="c0ffee", model=model, context="abc", oracle=oracle
        )

    def add(self, kind: TraceEventKind, **fields: Any) -> TraceEvent:
        """One event."""
        number = len(self.events) + 1
        event = TraceEvent(number=number, at=f"2026-01-23T16:30:{number % 60:02}.000Z", kind=kind, **fields)
        self.events.append(event)
        return event

    def start(self, step: str, cycle: int = 1) -> "Script":
        """A step starts."""
        self.add(TraceEventKind.STEP_START, step=step, cycle=cycle)
        return self

    def attempt(
        self, step: str, attempt: int = 1, cycle: int = 1, *, guard: str | None = None, said: str = "", fatal: bool = False,
        uses: Iterable[str] = (), content: str | None = None, usable: bool = True,
    ) -> "Script":  # fmt: skip
        """An attempt: accepted by the guard "syntax", and rejected by `guard` if one is given."""
        place = {"step": step, "cycle": cycle, "attempt": attempt}
        kind = KINDS.get(step, Kind.PLAN)
        text = content or json.dumps({"made": f"{step} {cycle}.{attempt}"})
        name = Artifact.name_of(kind, text) if usable else None
        if name is not None:
            self.artifacts[name] = Artifact(
                id=name, kind=kind, step=step, cycle=cycle, attempt=attempt, content=text,
            )  # fmt: skip
            self.current[step] = name
        edges = {one: self.current[one] for one in uses}
        usage = Usage(input_tokens=100, output_tokens=10, cost_usd=0.01)
        self.add(
            TraceEventKind.ATTEMPT,
            **place,
            artifact=name,
            usage=usage,
            tries=1,
            uses=edges,
            temperature=0.0,
            duration_sec=1.5,
            reason=None if usable else "no JSON",
        )
        if usable:
            self.add(TraceEventKind.GUARD, **place, guard="syntax", passed=True, duration_sec=0.1)
            if guard is not None:
                self.add(
                    TraceEventKind.GUARD,
                    **place,
                    guard=guard,
                    passed=False,
                    fatal=fatal,
                    feedback=said,
                    signature=said[:20],
                    duration_sec=0.2,
                )
        return self

    def passed(self, step: str, cycle: int = 1) -> "Script":
        """A step has its artifact."""
        self.add(TraceEventKind.STEP_PASS, step=step, cycle=cycle)
        return self

    def escalate(
        self,
        step: str,
        guard: str,
        targets: tuple[str, ...],
        invalidated: tuple[str, ...],
        many: int = 1,
        cycle: int = 1,
    ) -> "Script":
        """A step stagnates and sends the work back."""
        self.add(TraceEventKind.STAGNATION, step=step, cycle=cycle, guard=guard, signature="same")
        self.add(
            TraceEventKind.ESCALATE,
            step=step,
            cycle=cycle,
            guard=guard,
            targets=targets,
            escalations=many,
            summary="it fails the same way",
        )
        self.add(TraceEventKind.INVALIDATE, step=step, cycle=cycle, targets=invalidated)
        return self

    def failed(self, step: str, failure: StepFailure, guard: str | None = None, cycle: int = 1) -> "Script":
        """A step is given up, and the run with it."""
        self.add(TraceEventKind.STEP_FAIL, step=step, cycle=cycle, failure=failure)
        ending = WorkflowEnding.FATAL if failure is StepFailure.FATAL else WorkflowEnding.EXHAUSTED
        self.add(TraceEventKind.RUN_END, ending=ending, step=step, guard=guard)
        return self

    def done(self, step: str = "patch") -> "Script":
        """The run has all it wants."""
        self.add(TraceEventKind.RUN_END, ending=WorkflowEnding.DONE, artifact=self.current.get(step))
        return self

    def data(self) -> bytes:
        """The trace as it is on disk."""
        return b"".join(encode_line(event) for event in self.events)

    def write(self, trial: Path, patch: str | None = PATCH) -> Path:
        """The workflow folder of a trial."""
        trace_file(trial).parent.mkdir(parents=True, exist_ok=True)
        trace_file(trial).write_bytes(self.data())
        for name, artifact in self.artifacts.items():
            path = object_file(trial, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(msgspec.json.encode(artifact))
        if patch is not None:
            patch_file(trial).write_text(patch)
        return trial


def passes() -> Script:
    """Analysis, a test with one retry, a patch."""
    run = Script().start("analysis").attempt("analysis").passed("analysis")
    run.start("test").attempt("test", guard="test_red", said="ImportError: no module named calc", uses=["analysis"])
    run.attempt("test", 2, uses=["analysis"]).passed("test")
    return run.start("patch").attempt("patch", uses=["analysis", "test"]).passed("patch").done()


def gives_up() -> Script:
    """The patch is rejected again and again, escalated once to the analysis, and given up."""
    run = Script().start("analysis").attempt("analysis").passed("analysis").start("patch")
    run.attempt("patch", guard="test_green", said="FAILED test_calc.py\nAssertionError: 3 != 4", uses=["analysis"])
    run.attempt("patch", 2, guard="test_green", said="AssertionError: 3 != 4", uses=["analysis"])
    run.escalate("patch", "test_green", ("analysis",), ("analysis", "patch"))
    run.start("analysis", 2).attempt("analysis", cycle=2).passed("analysis", 2).start("patch", 2)
    run.attempt("patch", cycle=2, guard="patch", said="Search string not found in calc.py", uses=["analysis"])
    run.attempt("patch", 2, 2, usable=False)
    return run.failed("patch", StepFailure.RMAX, "answer", 2)


def helped() -> Script:
    """One escalation, after which the patch is accepted."""
    run = Script().start("analysis").attempt("analysis").passed("analysis").start("patch")
    run.attempt("patch", guard="lint", said="undefined name 'x'", uses=["analysis"])
    run.escalate("patch", "lint", ("analysis",), ("analysis", "patch")).start("analysis", 2)
    run.attempt("analysis", cycle=2).passed("analysis", 2).start("patch", 2)
    return run.attempt("patch", cycle=2, uses=["analysis"]).passed("patch", 2).done()


def fatal() -> Script:
    """A guard says that no retry can help."""
    run = Script("singleshot").start("patch").attempt("patch", guard="patch", said="no repository", fatal=True)
    return run.failed("patch", StepFailure.FATAL)
