"""Rubrics: TOML files that say what a judge is asked. Ours are beside this module; a path names another one."""

import tomllib
from functools import cached_property
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from terminalbench.errors import UserError, did_you_mean
from terminalbench.llm.model import Schema
from terminalbench.llm.schema import schema_of

NAMES = ("strategy", "root_cause", "mcp_use", "comparison", "synthesis")
"""Our own, in the order they are asked."""

_NAME = r"^[a-z][a-z0-9_]*$"


class Point(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing to answer. A label is one of `labels` (name to meaning); a number lies within its bounds.

    Points with `evidence = false` (a confidence, a remark) stand or fall with the rubric's first point.
    """

    name: Annotated[str, msgspec.Meta(pattern=_NAME)]
    kind: Literal["label", "number", "integer", "bool", "text"]
    ask: str
    labels: dict[str, str] = {}
    minimum: float | None = None
    maximum: float | None = None
    evidence: bool = True


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(pattern=_NAME)]
    guide: str
    scope: Literal["trial", "pair", "batch"] = "trial"
    applies: Literal["all", "failed", "mcp"] = "all"
    blind: bool = False
    points: list[Point] = []


class Evidence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A quote and the step it is copied from."""

    step: Annotated[int, msgspec.Meta(description="number of the step; 0 for the verifier's output")]
    quote: Annotated[str, msgspec.Meta(description="copied word for word from that step")]


class PairEvidence(Evidence, frozen=True, forbid_unknown_fields=True):
    """A quote of one of two trials."""

    trial: Literal["A", "B"]


class PairAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked about two trials of one task."""

    story: str
    evidence: list[PairEvidence]
    decisive: str
    reason: str
    better: Literal["A", "B", "tie"] | None


class ClaimAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One statement, with the trials it rests on."""

    text: str
    trials: Annotated[list[str], msgspec.Meta(description='numbers of trials as given, such as "T3"')]
    confidence: Literal["low", "medium", "high"]


class BatchAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked about a whole batch."""

    summary: str
    claims: list[ClaimAnswer]
    improvements: list[str]
    limitations: list[str]


class Rubric:
    """A rubric that was read and checked. `digest` changes with every byte of its file."""

    def __init__(self, raw: _File, data: bytes) -> None:
        self.name = raw.name
        self.guide = raw.guide.strip()
        self.scope = raw.scope
        self.applies = raw.applies
        self.blind = raw.blind
        self.points = tuple(raw.points)
        self.digest = sha256(data).hexdigest()[:12]

    @property
    def analyzer(self) -> str:
        """What its findings name as their analyzer."""
        return f"judge:{self.name}"

    def version(self, model: str) -> str:
        """What its findings name as their version."""
        return f"{self.digest}+{model}"

    @cached_property
    def schema(self) -> Schema:
        """The form of its answers."""
        if self.scope == "pair":
            return schema_of(PairAnswer, self.name)
        if self.scope == "batch":
            return schema_of(BatchAnswer, self.name)
        fields = [(point.name, _answer_type(point)) for point in self.points]
        return schema_of(msgspec.defstruct(self.name, fields, forbid_unknown_fields=True), self.name)


def load_rubric(name: str) -> Rubric:
    """One of ours by name, or the TOML file at a path; a clear error otherwise."""
    if name in NAMES:
        return parse_rubric(files(__package__).joinpath("rubrics", f"{name}.toml").read_bytes(), name)
    path = Path(name)
    if not path.suffix and not path.exists():
        raise UserError(f'no rubric is called "{name}"', hint=did_you_mean(name, NAMES))
    try:
        return parse_rubric(path.read_bytes(), str(path))
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path)) from None


def parse_rubric(data: bytes, where: str) -> Rubric:
    """The rubric in a TOML text. Raises UserError."""
    try:
        raw = msgspec.convert(tomllib.loads(data.decode()), _File)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise UserError(f"not a rubric: {error}", where=where) from None
    problem = _problem(raw)
    if problem is not None:
        raise UserError(f"not a rubric: {problem}", where=where)
    return Rubric(raw, data)


def point_named(name: str) -> Point | None:
    """The point of our own rubrics that is called `name`."""
    ours = (load_rubric(rubric) for rubric in NAMES)
    return next((point for rubric in ours for point in rubric.points if point.name == name), None)


def _problem(raw: _File) -> str | None:
    if raw.scope != "trial":
        return f'a rubric of scope "{raw.scope}" has a fixed form and no points' if raw.points else None
    if not raw.points:
        return "it has no points"
    if not raw.points[0].evidence:
        return f'its first point "{raw.points[0].name}" must ask for evidence'
    if len({point.name for point in raw.points}) < len(raw.points):
        return "two points have the same name"
    for point in raw.points:
        if (point.kind == "label") != bool(point.labels):
            return f'point "{point.name}": labels belong to kind "label", and only there'
    return None


def _answer_type(point: Point) -> type[msgspec.Struct]:
    # The value comes last: a model that has written its reasons down answers better.
    fields: list[Any] = [("reason", str), ("evidence", list[Evidence]), ("value", _value_type(point))]
    if not point.evidence:
        del fields[1]
    return msgspec.defstruct(f"Answer_{point.name}", fields, forbid_unknown_fields=True)


def _value_type(point: Point) -> Any:
    if point.kind == "label":
        return Literal[tuple(point.labels)] | None  # ty: ignore[invalid-type-form]
    if point.kind in ("number", "integer"):
        number: Any = float if point.kind == "number" else int
        low, high = (None if bound is None else number(bound) for bound in (point.minimum, point.maximum))
        return Annotated[number, msgspec.Meta(ge=low, le=high)] | None
    return {"bool": bool | None, "text": str | None}[point.kind]
