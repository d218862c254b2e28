"""One attempt of a step: the prompt, the model's answer, the artifact that it becomes, and what it cost."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from terminalbench import registry
from terminalbench.llm.model import ModelError, ModelFault, Reply
from terminalbench.records.trial import Usage
from terminalbench.workflow import prompts
from terminalbench.workflow.generators import GENERATORS, Analysis, Localisation, Patch, Plan, answer_of, content_of
from terminalbench.workflow.model import Artifact, Guard, GuardResult, Kind, ModelPort, Workspace
from terminalbench.workflow.prompts import Scene
from terminalbench.workflow.state import WorkflowState
from terminalbench.workflow.trace import ANSWER, Sink, TraceEventKind

UNUSABLE = frozenset({ModelFault.BAD_ANSWER, ModelFault.REFUSED})
"""What a model itself did wrong: an attempt, with feedback."""
_SHRINKS = 3
_SHOWN_FILES = 8
_LONGEST_FILE = 15_000
_LONGEST_REASON = 500


@dataclass(frozen=True)
class WorkflowInput:
    """The subject of a run. `shown` are the paths of files whose text is in the context already.

    `test_notes` say how the repository is tested, to those who write tests.
    """

    task: str
    context: str = ""
    context_hash: str | None = None
    shown: Sequence[str] = ()
    language: str = ""
    model: str | None = None
    test_notes: str = ""


def named_guard(name: str) -> Guard:
    """The guard that a workflow file names."""
    return registry.resolve("guards", name)()


@dataclass(frozen=True)
class Ports:
    """All that a run touches. `clock` is in seconds, from anywhere."""

    model: ModelPort
    workspace: Workspace
    sink: Sink
    guard: Callable[[str], Guard] = named_guard
    clock: Callable[[], float] = time.monotonic


class StepClient:
    """Asks the model for the artifacts of steps, and adds up what that costs."""

    def __init__(self, given: WorkflowInput, ports: Ports, state: WorkflowState) -> None:
        self._given, self._ports, self._state = given, ports, state
        self._usages: list[Usage] = []

    @cached_property
    def _window(self) -> int | None:
        return self._ports.model.context_tokens()

    @property
    def usage(self) -> Usage:
        """Tokens and cost of every request so far, those of unusable answers and repairs too."""
        return _added(self._usages)

    async def attempt(
        self, name: str, attempt: int, previous: Artifact | None, stuck: str | None
    ) -> Artifact | GuardResult:
        """Ask the model once: an artifact, or why its answer cannot be used.

        `previous` is what this cycle made last, `stuck` the guard whose error repeats.
        """
        step, state = self._state.step(name), self._state
        inputs = [state.accepted[required] for required in step.requires]
        raised = step.retry_temperature if attempt > 1 else None
        temperature = raised if raised is not None else step.temperature
        scene = await self._scene(name, inputs, previous, stuck)
        edges: dict[str, Any] = {
            "uses": {artifact.step: artifact.id for artifact in inputs},
            "previous": previous.id if previous is not None else None,
            "escalated_from": state.escalated_from.get(name) if attempt == 1 else None,
        }
        about: dict[str, Any] = {"step": name, "cycle": state.cycles[name], "attempt": attempt}
        started, spent = self._ports.clock(), len(self._usages)
        told: dict[str, Any] = {}
        try:
            reply = await self._answer(scene, temperature)
        except ModelError as error:
            if error.fault not in UNUSABLE and error.fault is not ModelFault.TOO_LONG:
                raise
            told["reason"] = error.what[:_LONGEST_REASON]
            told["rejected"] = self._kept(error.rejected)
            made = GuardResult(
                passed=False, guard=ANSWER, feedback=_unusable(error), fatal=error.fault is ModelFault.TOO_LONG
            )
        else:
            kind, content = GENERATORS[step.generator].kind, content_of(reply.parsed)
            made = Artifact(id=Artifact.name_of(kind, content), kind=kind, content=content, **about, **edges)
            told |= {"artifact": made.id, "tries": reply.tries, "rejected": self._kept(reply.rejected)}
            temperature = None if reply.own_temperature else temperature
            self._ports.sink.keep(made)
        usage, seconds = _added(self._usages[spent:]), round(self._ports.clock() - started, 3)
        self._ports.sink.write(
            TraceEventKind.ATTEMPT, **about, **edges, **told, temperature=temperature, usage=usage, duration_sec=seconds
        )
        return made

    def _kept(self, answers: Sequence[str]) -> tuple[str, ...]:
        return tuple(map(self._ports.sink.keep_answer, answers))

    async def _scene(
        self, name: str, inputs: Sequence[Artifact], previous: Artifact | None, stuck: str | None
    ) -> Scene:
        """Everything that the prompt of the next attempt may tell."""
        state = self._state
        before = state.this_cycle(name)
        return Scene(
            name=name,
            step=state.step(name),
            task=self._given.task,
            context=self._given.context,
            test_notes=self._given.test_notes if state.kind(name) is Kind.TEST else "",
            inputs=inputs,
            files=await self._files([*inputs, *([previous] if previous is not None else [])]),
            attempts=before,
            earlier=state.tried.get(name, [])[: len(state.tried.get(name, [])) - len(before)],
            sent_back=state.sent_back.get(name, ()),
            withdrawn=state.withdrawn.get(name, ()),
            stuck=stuck,
        )

    async def _answer(self, scene: Scene, temperature: float) -> Reply:
        """The model's answer; a prompt that is longer than its window after all is shortened further."""
        schema = GENERATORS[scene.step.generator].schema
        tokens = prompts.room(self._window)
        shrinks = 0
        while True:
            try:
                reply = await self._ports.model.ask(prompts.messages(scene, tokens), schema, temperature)
            except ModelError as error:
                if error.usage is not None:
                    self._usages.append(error.usage)
                if error.fault is not ModelFault.TOO_LONG or shrinks >= _SHRINKS:
                    raise
                shrinks, tokens = shrinks + 1, tokens // 2
            else:
                self._usages.append(reply.usage)
                if reply.cut_off or reply.parsed is None:
                    raise ModelError(
                        ModelFault.BAD_ANSWER, "the answer was cut off before its end", rejected=(reply.text,)
                    )
                return reply

    async def _files(self, artifacts: Sequence[Artifact]) -> dict[str, str]:
        """The files of the repository that these artifacts name and the context does not show."""
        named = dict.fromkeys(path for artifact in artifacts for path in _paths(artifact))
        wanted = [path for path in named if path not in self._given.shown][:_SHOWN_FILES]
        found = await self._ports.workspace.read_many(wanted) if wanted else {}
        texts = {path: _text(found[path]) for path in wanted if path in found}
        return {path: prompts.shorten(text, _LONGEST_FILE) for path, text in texts.items() if text is not None}


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _added(usages: Sequence[Usage]) -> Usage:
    return Usage.added(usages, usages[0].source, usages[0].cost_source) if usages else Usage()


def _unusable(error: ModelError) -> str:
    if error.fault is ModelFault.REFUSED:
        return f"No answer was given: {error.what}. The task is ordinary software work; answer in the form asked for."
    return f"The answer could not be used: {error.what}. Answer with one complete JSON object in the form asked for."


def _paths(artifact: Artifact) -> Iterator[str]:
    """The files of the repository that an artifact names."""
    try:
        answer = answer_of(artifact)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return
    if isinstance(answer, Analysis):
        yield from answer.files
    elif isinstance(answer, Localisation):
        yield from (*(place.path for place in answer.places), *answer.tests)
    elif isinstance(answer, Plan):
        yield from (change.path for change in answer.changes)
    elif isinstance(answer, Patch):
        yield from (edit.path for edit in answer.edits if edit.action != "create")
