"""What a step may ask a model for: the form of each answer, and the artifact that an answer becomes.

An artifact's content is the JSON of its answer, so the same answer is the same artifact. What a form cannot say (a
search text that is not in the file, a path that does not exist) is left to guards, whose feedback the model sees.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from terminalbench.decode import decode
from terminalbench.llm.model import Schema, schema_of
from terminalbench.workflow.model import Artifact, Kind


class Analysis(msgspec.Struct, frozen=True, kw_only=True):
    """Why the repository does not do what the task asks for, and what would mend it."""

    root_cause: str
    fix_approach: str
    files: tuple[str, ...]
    components: tuple[str, ...] = ()
    confidence: Literal["low", "medium", "high"] = "medium"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """One place that has to change."""

    path: str
    symbol: str = ""
    reason: str = ""


class Localisation(msgspec.Struct, frozen=True, kw_only=True):
    """Where the change belongs, most important place first."""

    places: tuple[Place, ...]
    tests: tuple[str, ...] = ()
    reasoning: str = ""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change that a plan wants in one file."""

    path: str
    what: str
    action: Literal["create", "modify", "delete"] = "modify"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How the task will be done: the approach, each change, and what could break."""

    approach: str
    changes: tuple[Change, ...]
    risks: tuple[str, ...] = ()


class WrittenTest(msgspec.Struct, frozen=True, kw_only=True):
    """A new test file. `path` may be empty: then it goes where the language and the repository expect it.

    `target` is the behaviour that it demands.
    """

    code: str
    target: str
    path: str = ""


class Edit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One edit of one file, the fields in use depend on `action`.

    create: `content` is the whole new file. modify: `search` is in the file exactly once and becomes `replace`.
    delete: the file goes.
    """

    action: Literal["create", "modify", "delete"]
    path: str
    search: str = ""
    replace: str = ""
    content: str = ""


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """The change itself. Several edits of one file are made in their order."""

    edits: tuple[Edit, ...]
    reasoning: str = ""

    def begun(self, edits: int = 100, letters: int = 1000) -> "Patch":
        """Return the patch with its first edits only, their texts cut short."""
        cut = [
            replace(edit, search=edit.search[:letters], replace=edit.replace[:letters], content=edit.content[:letters])
            for edit in self.edits[:edits]
        ]
        return replace(self, edits=tuple(cut))


class Issue(msgspec.Struct, frozen=True, kw_only=True):
    """One objection of a review."""

    what: str
    path: str = ""
    severity: Literal["minor", "major"] = "major"


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """A judgement of a patch: approve it, revise it, or go back to what it was built on (`target`, a kind)."""

    verdict: Literal["approve", "revise", "backtrack"]
    reasoning: str
    issues: tuple[Issue, ...] = ()
    target: Literal["analysis", "localisation", "plan", "test", "patch", ""] = ""


@dataclass(frozen=True)
class Generator:
    """A kind of answer: the artifact it becomes, its type, and what a prompt says about its form."""

    kind: Kind
    answer: type[msgspec.Struct]
    form: str

    @property
    def schema(self) -> Schema:
        """Return what is asked of the model."""
        return _schema(self.kind)


GENERATORS: Mapping[str, Generator] = {
    Kind.ANALYSIS: Generator(
        Kind.ANALYSIS,
        Analysis,
        "`root_cause`, `fix_approach`; `files`: paths of existing files of the repository that matter, the most "
        "important first; `components`: functions, classes or modules involved; `confidence`: low, medium or high.",
    ),
    Kind.LOCALISATION: Generator(
        Kind.LOCALISATION,
        Localisation,
        "`places`: one to five, each with `path` of an existing file, `symbol` (function, class or section) and "
        "`reason`; `tests`: paths of existing test files that cover them; `reasoning`.",
    ),
    Kind.PLAN: Generator(
        Kind.PLAN,
        Plan,
        "`approach`; `changes`: each with `action` (create, modify or delete), `path` and `what` changes there; "
        "`risks`: what could break.",
    ),
    Kind.TEST: Generator(
        Kind.TEST,
        WrittenTest,
        "`code`: the whole text of one new test file; `target`: the behaviour it demands, in one sentence; `path`: "
        "where in the repository it belongs, or empty for the usual place.",
    ),
    Kind.PATCH: Generator(
        Kind.PATCH,
        Patch,
        "`edits`: each with `action` and `path`. To change a file: action `modify`, `search` = text that stands in "
        "the file exactly once, copied character for character with its indentation (no line numbers), `replace` = "
        "what it becomes. To add a file: action `create`, `content` = the whole file. To remove one: action "
        "`delete`. All edits start from the files as they are in the repository, not from an earlier patch. "
        "`reasoning`: why this does the task.",
    ),
    Kind.REVIEW: Generator(
        Kind.REVIEW,
        Review,
        "`verdict`: approve, revise (the patch has to change) or backtrack (what it was built on is wrong); `target`: "
        "with backtrack, what has to be made again (analysis, localisation, plan or test); `issues`: each with "
        "`what`, `path` and `severity` (minor or major); `reasoning`.",
    ),
}
"""The generators, by the name that a workflow file uses."""


@cache
def _schema(kind: Kind) -> Schema:
    return schema_of(GENERATORS[kind].answer, f"{kind}_answer")


def content_of(answer: msgspec.Struct) -> str:
    """The content of the artifact that an answer becomes."""
    return msgspec.json.encode(answer).decode()


def answer_of(artifact: Artifact) -> Any:
    """The answer in an artifact, as the struct of its kind. Raises msgspec.ValidationError or DecodeError."""
    return decode(artifact.content, GENERATORS[artifact.kind].answer)
