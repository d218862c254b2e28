"""A guarded workflow without anything outside: a scripted model, guards that say what they are told, a trace in memory."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from terminalbench.llm.model import Message, ModelError, Reply, Schema
from terminalbench.records.trial import Usage
from terminalbench.workflow.attempt import Ports, WorkflowInput
from terminalbench.workflow.engine import Engine, WorkflowResult
from terminalbench.workflow.generators import GENERATORS
from terminalbench.workflow.model import Artifact, CommandRun, Guard, GuardContext, GuardResult, Kind, Workflow
from terminalbench.workflow.trace import Sink, TraceEvent, TraceEventKind

TASK = "The function double returns its argument: make it return twice of it."

ANSWERS: Mapping[Kind, dict[str, Any]] = {
    Kind.ANALYSIS: {"root_cause": "cause", "fix_approach": "fix", "files": ["a.py"]},
    Kind.LOCALISATION: {"places": [{"path": "a.py", "symbol": "double", "reason": "it"}]},
    Kind.PLAN: {"approach": "way", "changes": [{"path": "a.py", "what": "times two"}]},
    Kind.TEST: {"code": "def test_double(): assert double(2) == 4\n", "target": "doubles"},
    Kind.PATCH: {"edits": [{"action": "modify", "path": "a.py", "search": "x", "replace": "2 * x"}]},
    Kind.REVIEW: {"verdict": "approve", "reasoning": "fine"},
}


class Memory(Sink):
    """A trace in memory."""

    def __init__(self) -> None:
        super().__init__(lambda: datetime(2026, 1, 1, tzinfo=UTC))
        self.events: list[TraceEvent] = []
        self.artifacts: dict[str, Artifact] = {}
        self.answers: dict[str, str] = {}

    def put(self, event: TraceEvent) -> None:
        self.events.append(event)

    def keep(self, artifact: Artifact) -> None:
        self.artifacts.setdefault(artifact.id, artifact)

    def put_answer(self, name: str, text: str) -> None:
        self.answers[name] = text


@dataclass
class Asked:
    """One request: what was asked for, the whole prompt, the temperature."""

    kind: Kind
    prompt: str
    temperature: float


@dataclass
class ScriptedModel:
    """Answers each kind from its own list, then with a usual answer that differs each time. 10 tokens in, 5 out."""

    script: dict[Kind, list[dict[str, Any] | ModelError | Callable[[], Awaitable[Any]]]] = field(default_factory=dict)
    window: int | None = 100_000
    asked: list[Asked] = field(default_factory=list)

    async def ask(self, messages: Sequence[Message], schema: Schema, temperature: float) -> Reply:
        kind = next(k for k in Kind if GENERATORS[k].schema.name == schema.name)
        self.asked.append(Asked(kind, "\n".join(message.content for message in messages), temperature))
        answers = self.script.get(kind)
        answer = answers.pop(0) if answers else self.usual(kind)
        if isinstance(answer, ModelError):
            raise answer
        if not isinstance(answer, dict):
            answer = await answer()
        usage = Usage(input_tokens=10, output_tokens=5, cost_usd=0.5, source="server", cost_source="server")
        return Reply(text="", model="scripted", usage=usage, parsed=msgspec.convert(answer, GENERATORS[kind].answer))

    def usual(self, kind: Kind) -> dict[str, Any]:
        return {**ANSWERS[kind], "reasoning": f"number {len(self.asked)}"}

    def context_tokens(self) -> int | None:
        return self.window

    def prompts(self, kind: Kind) -> list[str]:
        return [one.prompt for one in self.asked if one.kind == kind]


class Files:
    """A workspace of files in memory; nothing can be run in it."""

    def __init__(self, files: Mapping[str, bytes] | None = None) -> None:
        self.base = dict(files or {"a.py": b"def double(x):\n    return x\n"})

    async def files(self) -> Sequence[str]:
        return sorted(self.base)

    async def read(self, path: str) -> bytes | None:
        return self.base.get(path)

    async def read_many(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        return {path: self.base[path] for path in paths if path in self.base}

    async def run(
        self, command: Sequence[str], *, timeout_sec: float, files: Mapping[str, bytes | None] | None = None
    ) -> CommandRun:
        raise AssertionError(f"{command} after {timeout_sec} with {files}: nothing runs here")

    async def diff(self, files: Mapping[str, bytes | None]) -> str:
        raise AssertionError(f"{files}: there is no git here")

    async def apply(self, patch: str) -> str | None:
        raise AssertionError(f"{patch}: there is no git here")


Verdict = bool | str | GuardResult | BaseException
"""What a guard says: passed; an error, which is also its signature; a whole result; or what it raises."""


@dataclass
class Verdicts:
    """Guards that say what they are told, in order, and pass when nothing is left to say."""

    script: dict[str, list[Verdict]] = field(default_factory=lambda: defaultdict(list))
    seen: list[tuple[str, Artifact, GuardContext]] = field(default_factory=list)

    def guard(self, name: str) -> Guard:
        return _Told(name, self)


@dataclass
class _Told:
    name: str
    verdicts: Verdicts

    async def check(self, artifact: Artifact, context: GuardContext) -> GuardResult:
        self.verdicts.seen.append((self.name, artifact, context))
        told = self.verdicts.script.get(self.name)
        verdict = told.pop(0) if told else True
        if isinstance(verdict, BaseException):
            raise verdict
        if isinstance(verdict, GuardResult):
            return verdict
        if isinstance(verdict, str):
            return GuardResult(passed=False, guard=self.name, feedback=f"feedback: {verdict}", signature=verdict)
        return GuardResult(passed=verdict, guard=self.name)


@dataclass
class Bench:
    """A run of a workflow with everything scripted."""

    workflow: Workflow
    model: ScriptedModel = field(default_factory=ScriptedModel)
    verdicts: Verdicts = field(default_factory=Verdicts)
    files: Files = field(default_factory=Files)
    sink: Memory = field(default_factory=Memory)
    given: WorkflowInput = field(
        default_factory=lambda: WorkflowInput(task=TASK, context="a.py", language="python", model="scripted")
    )

    def __post_init__(self) -> None:
        ports = Ports(model=self.model, workspace=self.files, sink=self.sink, guard=self.verdicts.guard, clock=float)
        self.engine = Engine(self.workflow, self.given, ports)

    def run(self, limit_sec: float | None = None) -> WorkflowResult:
        return asyncio.run(self.engine.run(limit_sec))

    def of(self, kind: TraceEventKind) -> list[TraceEvent]:
        return [event for event in self.sink.events if event.kind is kind]

    def lines(self) -> list[str]:
        return [line_of(event) for event in self.sink.events]


def line_of(event: TraceEvent) -> str:
    """An event as a line of a golden file."""
    about = [f"{event.kind:11}", event.step or event.workflow or ""]
    about += [f"cycle {event.cycle}"] if event.cycle is not None else []
    about += [f"attempt {event.attempt}"] if event.attempt is not None else []
    about += [f"at {event.temperature:g}"] if event.temperature is not None else []
    about += [f"{event.guard}"] if event.guard is not None else []
    about += ["passed" if event.passed else "rejected"] if event.passed is not None else []
    about += ["fatal"] if event.fatal else []
    about += [event.failure] if event.failure is not None else []
    about += [f"-> {', '.join(event.targets)}"] if event.targets else []
    about += [f"({event.escalations})"] if event.escalations is not None else []
    about += [event.ending] if event.ending is not None else []
    about += (
        [f"{event.usage.input_tokens}+{event.usage.output_tokens}"]
        if event.kind is TraceEventKind.RUN_END and event.usage
        else []
    )
    return " ".join(part for part in about if part)


def back(kind: Kind, said: str) -> GuardResult:
    """A review that sends the work back."""
    return GuardResult(passed=False, guard="review", feedback=f"feedback: {said}", signature=said, back=kind)


def fatal(guard: str, said: str) -> GuardResult:
    """A result that no retry can help."""
    return GuardResult(passed=False, guard=guard, feedback=f"feedback: {said}", signature=said, fatal=True)
