"""What people say about trials: append-only, with author and reason. A label goes before any analyzer's word."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from math import nextafter
from pathlib import Path
from typing import Literal

import msgspec

from terminalbench.analytics.findings.failure import FAILURE_CLASSES
from terminalbench.analytics.findings.measures import MEASURES, MIX, RECORDED
from terminalbench.analytics.judge.rubric import NAMES, Point, load_rubric
from terminalbench.errors import UserError, did_you_mean
from terminalbench.json_files import append_jsonl, read_jsonl
from terminalbench.records.trial import Finding
from terminalbench.text.numbers import plural

FILE = "labels.jsonl"
ANALYZER = "label"
FAILURE_CLASS = "failure_class"
STATES = ("unfinished", "not_run", "unreadable")
"""Failure classes of trials that did not end: why they failed is not known."""
_CLASSES = tuple(name for name in FAILURE_CLASSES if name not in STATES)
_RENAMED = {
    "infrastructure": "environment",
    "verifier_broken": "verifier",
    "refusal": "safety_refusal",
    "limit_reached": "agent_limit",
    "unknown_error": "unknown",
}
_KINDS = {measure.name: measure.kind for measure in MEASURES}
_POINTS: dict[str, Literal["bool", "integer", "number", "text"]] = {
    "yes_no": "bool",
    "count": "integer",
    "number": "number",
    "label": "text",
}
_MOST = nextafter(2.0**63, 0.0)
_SWITCHES = {"true": True, "yes": True, "false": False, "no": False}

type Said = bool | int | float | str
type People = Mapping[tuple[str, str], Label]
"""What holds of what people said, by trial and name."""


class Label(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line of labels.jsonl: what a person says, or that what was said before no longer holds (`removed`)."""

    time: str
    trial: str
    name: str
    author: str
    reason: str
    value: Said | None = None
    removed: bool = False

    def as_finding(self) -> Finding:
        """The label as a finding, its author in the analyzer's place."""
        return Finding(self.trial, f"{ANALYZER}:{self.author}", self.time, self.name, self.value, self.reason)


@dataclass(frozen=True)
class Labels:
    """A batch's labels: every line in order, and how many lines cannot be read or hold a value that does not fit."""

    lines: list[Label]
    unreadable: int = 0

    def current(self) -> dict[tuple[str, str], Label]:
        """Return what holds now, by trial and name: the last word on each, unless it was a removal."""
        last = {(label.trial, label.name): label for label in self.lines}
        return {key: label for key, label in last.items() if not label.removed}


def read_labels(analytics: Path) -> Labels:
    """The labels of a batch, from its analytics folder. A file that cannot be opened counts as one bad line."""
    try:
        found = read_jsonl(analytics / FILE, Label)
    except OSError:
        return Labels([], 1)
    known = map(_renamed, found.records)
    lines = [label for label in known if _fits(label)]
    return Labels(lines, len(found.bad) + len(found.records) - len(lines))


def _renamed(label: Label) -> Label:
    """A label of an earlier version, with the name that its failure class has now."""
    new = _RENAMED.get(str(label.value)) if label.name == FAILURE_CLASS else None
    return label if new is None else msgspec.structs.replace(label, value=new)


def add_label(analytics: Path, label: Label) -> None:
    """Append one line, durably."""
    append_jsonl(analytics / FILE, label, durable=True)


def make_label(trial: str, name: str, value: Said | None, author: str, reason: str, now: datetime) -> Label:
    """A label, or with `value` None its removal. Author and reason must say something."""
    for what, text in (("author", author), ("reason", reason)):
        if not text.strip():
            raise UserError(f"the {what} is empty", hint=f"give --{what}: it is stored with the label")
    return Label(
        time=now.isoformat(timespec="seconds"),
        trial=trial,
        name=name,
        value=value,
        author=author.strip(),
        reason=reason.strip(),
        removed=value is None,
    )


def effective(findings: Iterable[Finding]) -> dict[tuple[str, str], Finding]:
    """The finding that counts, by trial and name: a person's before an analyzer's, a later one before an earlier."""
    found: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        key = (finding.trial, finding.name)
        if key not in found or is_label(finding) or not is_label(found[key]):
            found[key] = finding
    return found


def said_of(finding: Finding, people: People) -> Label | None:
    """Return what a person says in the place of an analyzer's finding. Why it failed is only said of a trial that
    did."""
    label = people.get((finding.trial, finding.name))
    failed = finding.name != FAILURE_CLASS or finding.value not in (None, *STATES)
    return label if failed else None


def corrected(findings: Sequence[Finding], people: People) -> list[Finding]:
    """An analyzer's findings with what people say in their place, and who does; its steps show something else."""
    if not people:
        return list(findings)
    return [
        finding
        if (label := said_of(finding, people)) is None
        else msgspec.structs.replace(
            finding, value=label.value, reason=f"{label.author} says: {label.reason}", steps=[]
        )
        for finding in findings
    ]


def is_label(finding: Finding) -> bool:
    """Return whether a person said it."""
    return finding.analyzer.startswith(f"{ANALYZER}:")


def parse_value(name: str, text: str, findings: Sequence[Finding]) -> Said:
    """`text` as the value that `name` takes: by its rubric or measure, else by what analyzers said under that name."""
    points = {point.name: point for rubric in NAMES for point in load_rubric(rubric).points}
    point = points.get(name) or _measure(name)
    if point is not None:
        return _fitting(point, text)
    known = {finding.name for finding in findings}
    if name not in known:
        raise UserError(
            f'nothing is called "{name}" in this batch',
            hint=did_you_mean(name, sorted(known | set(points) | (set(_KINDS) - set(RECORDED)))),
        )
    return _guessed(text)


def _measure(name: str) -> Point | None:
    """A measure as a point to answer; None for another name. What a result says is no matter of opinion."""
    kind = "count" if name.startswith(f"{MIX}.") else _KINDS.get(name)
    if kind is None:
        return None
    if name in RECORDED or kind == "table":
        what = "is recorded, not judged" if name in RECORDED else "is a table"
        raise UserError(f"{name} {what}: labels cannot change it", hint='label a judged value, such as "failure_class"')
    if name == FAILURE_CLASS:
        return Point(name, "label", "", dict.fromkeys(_CLASSES, ""))
    return Point(name, _POINTS[kind], "", minimum=0.0)


def _fitting(point: Point, text: str) -> Said:
    name = point.name
    if point.kind == "text":
        return text
    if point.kind == "label":
        if text not in point.labels:
            hint = did_you_mean(text, list(point.labels), limit=len(point.labels))
            raise UserError(f'{name} cannot be "{text}"', hint=hint)
        return text
    if point.kind == "bool":
        if text.lower() not in _SWITCHES:
            raise UserError(f'{name} is true or false, not "{text}"')
        return _SWITCHES[text.lower()]
    whole = point.kind == "integer"
    try:
        number = int(text) if whole else float(text)
    except ValueError:
        raise UserError(f'{name} is a {"whole " if whole else ""}number, not "{text}"') from None
    low = -_MOST if point.minimum is None else point.minimum
    if not low <= number <= (_MOST if point.maximum is None else point.maximum):
        above = f"it must not be below {low:g}"
        hint = above if point.maximum is None else f"it must be between {low} and {point.maximum}"
        raise UserError(f"{name} cannot be {text}", hint=hint)
    return number


def _fits(label: Label) -> bool:
    """Return whether a line of the file says what could be said now; the file may be older, or written by hand."""
    try:
        point = None if label.removed else _measure(label.name)
        return point is None or _fitting(point, str(label.value)) == label.value
    except UserError:
        return False


def _guessed(text: str) -> Said:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        with suppress(ValueError):
            number = kind(text)
            return number if -_MOST <= number <= _MOST else text
    return text


def unfit_lines(number: int) -> str:
    """That so many lines of labels.jsonl do not count, and why."""
    lines = plural(number, "line of labels.jsonl does", "lines of labels.jsonl do")
    return f"{lines} not count: unreadable, or with a value that does not fit"
