"""The nouns of a guarded workflow: what a file declares, what a step makes, what a guard says, what an engine is given.

A step asks a generator for an artifact and shows it to its guards, in order; the first that rejects it ends the
attempt, and its feedback is part of the next prompt. Everything outside (model, repository, clock) is a port.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, Protocol

import msgspec

from terminalbench.llm.model import Message, Reply, Schema
from terminalbench.strict import key


class Kind(StrEnum):
    """The kind of an artifact. Guards and prompts find the artifacts they need by kind, never by the name of a step."""

    ANALYSIS = "analysis"
    LOCALISATION = "localisation"
    PLAN = "plan"
    TEST = "test"
    PATCH = "patch"
    REVIEW = "review"


_NAME = r"[A-Za-z][A-Za-z0-9_-]{0,63}"
_NAME_DOC = "a letter, then letters, digits, - and _"
GUARD_SEC = 1800.0
"""How long each guard may take, unless its step says otherwise."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """`[steps.<name>]`: one step. It asks the model for an artifact, which its guards check in their order."""

    generator: Literal["analysis", "localisation", "plan", "test", "patch", "review"] = key(
        "What the step makes.", required=True
    )
    prompt: str | None = key("What the model is told to do. The renderer adds task, context, inputs and feedback.")
    prompt_file: str | None = key("File with the prompt, next to the workflow file.", non_empty=True)
    guards: list[str] = key(
        "Guards in order: a name, or `pkg.mod:Class`. The first that rejects ends the attempt.", factory=list
    )
    requires: list[str] = key("Steps whose artifacts the step gets.", factory=list)
    rmax: int = key("Retries after a rejected attempt, in each cycle.", default=3, minimum=0, maximum=50)
    patience: int | None = key("How many equal errors of one guard in a cycle count as stagnation.", minimum=1)
    e_max: int = key("How often the step may send the run back.", default=0, minimum=0, maximum=20)
    escalate: list[str] = key("Steps above it that run again when it stagnates.", factory=list)
    escalate_by_guard: dict[str, list[str]] = key(
        "Targets for the errors of one guard, instead of `escalate`.", factory=dict
    )
    budgets: dict[str, int] = key(
        "How often the step may send the run back to each target; the run then goes to the first target of the list "
        "that has some left. Without it, all targets run again together.",
        factory=dict,
    )
    temperature: float = key("Temperature of first attempts.", default=0.0, minimum=0, maximum=2)
    retry_temperature: float | None = key("Temperature of retries; higher than `temperature`.", minimum=0, maximum=2)
    options: dict[str, Any] = key("Options of each guard, a table by the guard's name.", factory=dict)
    guard_timeout_sec: float = key(
        "Time limit of each of its guards, in seconds. Exceeding it is an error of the guard, not a failed attempt.",
        default=GUARD_SEC,
        above=0,
    )


@dataclass(frozen=True, kw_only=True)
class WorkflowTable:
    """The top of a workflow file."""

    name: str = key("Name of the workflow.", pattern=_NAME, pattern_doc=_NAME_DOC, required=True)
    steps: dict[str, Step] = key("The steps.", pattern=_NAME, pattern_doc=_NAME_DOC, required=True)
    description: str = key("Description, for people.", default="")
    oracle: bool = key(
        "The workflow sees the hidden verdict: its results are marked and left out of comparisons.", default=False
    )
    submit_best: bool = key(
        "A run that gives up submits the patch that passed most guards, if there is one; results mark it.",
        default=False,
    )


@dataclass(frozen=True, kw_only=True)
class Workflow(WorkflowTable):
    """A checked workflow: each step comes after those that it requires. `digest` is of its texts."""

    digest: str = ""

    def dependents(self, step: str) -> tuple[str, ...]:
        """The steps that need `step`, directly or not, in order."""
        found = {step}
        for name, other in self.steps.items():
            if found & set(other.requires):
                found.add(name)
        return tuple(name for name in self.steps if name in found and name != step)


class Artifact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The product of one attempt. `id` names kind and content; the edges say where it comes from.

    `previous` is the attempt it retries, `uses` the artifact of each required step, `escalated_from` the last rejected
    artifact of the step whose escalation made this step run again. `letters` is how long the content was where only
    the beginnings of its texts are kept: a large patch that was applied stands in the trial's patch.diff.
    """

    id: str
    kind: Kind
    step: str
    cycle: int
    attempt: int
    content: str
    previous: str | None = None
    uses: Mapping[str, str] = msgspec.field(default_factory=dict)
    escalated_from: str | None = None
    letters: int | None = None

    @staticmethod
    def name_of(kind: Kind, content: str) -> str:
        """The id of an artifact: the same kind and content, the same id."""
        return hashlib.sha256(f"{kind}\n{content}".encode()).hexdigest()


class GuardResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The verdict of a guard. `signature` is the error without what changes from try to try; equal ones are one error.

    `fatal` ends the workflow: no retry can help. `parts` are the results of the guards that a composite one asked.
    `back` asks to go back without further retries, to the artifact of that kind if it can be; it is the step's targets
    that decide (a review's verdict).
    """

    passed: bool
    guard: str
    feedback: str = ""
    signature: str | None = None
    fatal: bool = False
    parts: tuple["GuardResult", ...] = ()
    duration_sec: float = 0.0
    back: Kind | None = None


class CommandRun(msgspec.Struct, frozen=True):
    """The end of a command in the workspace. `code` is None when it was stopped at its time limit."""

    code: int | None
    stdout: str
    stderr: str


class Workspace(Protocol):
    """The repository that a workflow works on: inside the trial's environment, or a folder in tests."""

    async def files(self) -> Sequence[str]:
        """The paths of all tracked files at the base commit, sorted; links and submodules too."""
        ...

    async def read(self, path: str) -> bytes | None:
        """A plain file of the base commit; None when there is none (a link or a submodule is none)."""
        ...

    async def read_many(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        """Plain files of the base commit in one go; those that are none are left out."""
        ...

    async def run(
        self, command: Sequence[str], *, timeout_sec: float, files: Mapping[str, bytes | None] | None = None
    ) -> CommandRun:
        """Run a command on the base tree with `files` written (None: deleted), and reset the tree afterwards.

        Ignored files (dependencies, build output) stay.
        """
        ...

    async def diff(self, files: Mapping[str, bytes | None]) -> str:
        """Return what changes when `files` are written over the base tree: a patch that `git apply` takes."""
        ...

    async def apply(self, patch: str) -> str | None:
        """Leave the base tree with `patch` applied. When it does not apply: what git said, and the tree is the base."""
        ...


class ModelPort(Protocol):
    """The chat model of a run; its retries at a busy provider are no attempts of the model."""

    async def ask(self, messages: Sequence[Message], schema: Schema, temperature: float) -> Reply:
        """One checked answer. Raises `llm.model.ModelError`."""
        ...

    def context_tokens(self) -> int | None:
        """Return how much it can read; None when that is not known."""
        ...


class GuardContext(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a guard besides the artifact: the artifacts of the required steps, by kind, and the workspace."""

    workspace: Workspace
    inputs: Mapping[Kind, Artifact]
    language: str
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)


class Guard(Protocol):
    """A check. One of another package is named "module:Class" in the workflow file, or by an entry point.

    Made without arguments. Its class may say what a file is checked against: `judges`, the kinds of artifacts it can
    check (none: all); `needs`, the kinds that must be among the inputs; `options`, the type of each option it takes
    (its value is in `GuardContext.options`; none: it takes no options). `goes_back`: its results may ask to go back.
    """

    name: str

    async def check(self, artifact: Artifact, context: GuardContext) -> GuardResult:
        """Say whether the artifact holds. What the workspace cannot do (no git, a broken sandbox) is an exception."""
        ...
