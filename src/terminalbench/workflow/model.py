"""The nouns of a guarded workflow: what a file declares, what a step makes, what a guard says, what an engine is given.

A step asks a generator for an artifact and shows it to its guards, in order; the first that rejects it ends the
attempt, and its feedback is part of the next prompt. Everything outside (model, repository, clock) is a port.
"""

import hashlib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from terminalbench.llm.model import Message, Reply, Schema


class Kind(StrEnum):
    """The kind of an artifact. Guards and prompts find the artifacts they need by kind, never by the name of a step."""

    ANALYSIS = "analysis"
    LOCALISATION = "localisation"
    PLAN = "plan"
    TEST = "test"
    PATCH = "patch"
    REVIEW = "review"


GUARD_SEC = 1800.0
"""How long each guard may take, unless its step says otherwise."""


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step of a workflow, as its file declares it. `rmax` counts retries: a cycle has `rmax + 1` attempts.

    `patience` equal errors of one guard in a cycle are a stagnation: the step goes back to its targets (by guard, else
    `escalate`), at most `e_max` times. Without `budgets` to all of them; with `budgets` to the first target that has
    some left. `options` are those of each guard; one that takes longer than `guard_timeout_sec` is at fault.
    """

    generator: str
    prompt: str
    guards: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    rmax: int = 3
    patience: int | None = None
    e_max: int = 0
    escalate: tuple[str, ...] = ()
    escalate_by_guard: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    temperature: float = 0.0
    retry_temperature: float | None = None
    budgets: Mapping[str, int] = msgspec.field(default_factory=dict)
    guard_timeout_sec: float = GUARD_SEC
    options: Mapping[str, Mapping[str, Any]] = msgspec.field(default_factory=dict)


class Workflow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A checked workflow: its steps in an order in which each comes after what it requires.

    With `submit_best`, a run that gives up leaves its best patch, as one does at its time limit.
    """

    name: str
    steps: Mapping[str, Step]
    description: str = ""
    oracle: bool = False
    submit_best: bool = False
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
