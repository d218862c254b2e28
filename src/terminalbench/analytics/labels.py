"""What people say about trials: append-only, with author and reason. A label goes before any analyzer's word."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from terminalbench.analytics.findings.failure import FAILURE_CLASSES
from terminalbench.analytics.findings.measures import MEASURES, MIX, RECORDED
from terminalbench.analytics.judge.rubric import NAMES, Point, load_rubric
from terminalbench.errors import UserError, did_you_mean
from terminalbench.files import append_jsonl, read_jsonl
from terminalbench.records import Finding

FILE = "labels.jsonl"
ANALYZER = "label"
FAILURE_CLASS = "failure_class"
UNFIT = "they cannot be read, or hold a value that does not fit"
STATES = ("unfinished", "not_run", "unreadable")
"""Failure classes of trials that did not end: nobody can say why they failed."""
_CLASSES = tuple(name for name in FAILURE_CLASSES if name not in STATES)
_KINDS = {measure.name: measure.kind for measure in MEASURES}
_MOST = 2.0**63
_SWITCHES = {"true": True, "yes": True, "false": False, "no": False}

type Value = bool | int | float | str
type People = Mapping[tuple[str, str], Label]
"""What holds of what people said, by trial and name."""


class Label(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line of labels.jsonl: what a person says, or that what was said before no longer holds (`removed`)."""

    time: str
    trial: str
    name: str
    author: str
    reason: str
    value: Value | None = None
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
        """What holds now, by trial and name: the last word on each, unless it was a removal."""
        last = {(label.trial, label.name): label for label in self.lines}
        return {key: label for key, label in last.items() if not label.removed}


def read_labels(analytics: Path) -> Labels:
    """The labels of a batch, from its analytics folder. A file that cannot be opened counts as one bad line."""
    try:
        found = read_jsonl(analytics / FILE, Label)
    except OSError:
        return Labels([], 1)
    lines = [label for label in found.records if _fits(label)]
    return Labels(lines, len(found.bad) + len(found.records) - len(lines))


def add_label(analytics: Path, label: Label) -> None:
    """Append one line, durably."""
    append_jsonl(analytics / FILE, label, durable=True)


def make_label(trial: str, name: str, value: Value | None, author: str, reason: str, now: datetime) -> Label:
    """A label, or with `value` None its removal. Author and reason must say something."""
    for what, text in (("author", author), ("reason", reason)):
        if not text.strip():
            raise UserError(f"the {what} is empty", hint=f"a label is kept with its {what}")
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
    """What a person says in the place of an analyzer's finding. Why it failed is only said of a trial that did."""
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
    """Whether a person said it."""
    return finding.analyzer.startswith(f"{ANALYZER}:")


def parse_value(name: str, text: str, findings: Sequence[Finding]) -> Value:
    """`text` as the value that `name` takes: by its rubric or measure, else by what analyzers said under that name."""
    points = {point.name: point for rubric in NAMES for point in load_rubric(rubric).points}
    if name in points:
        return _fitting(points[name], text)
    if _kind(name) is not None:
        return _measure(name, text)
    known = {finding.name for finding in findings}
    if name not in known:
        raise UserError(
            f'nothing is called "{name}" in this batch',
            hint=did_you_mean(name, sorted(known | set(points) | (set(_KINDS) - set(RECORDED)))),
        )
    return _guessed(text)


def _fitting(point: Point, text: str) -> Value:
    if point.kind == "text":
        return text
    if point.kind == "label":
        if text not in point.labels:
            raise UserError(f'{point.name} cannot be "{text}"', hint=did_you_mean(text, list(point.labels)))
        return text
    if point.kind == "bool":
        return _switch(point.name, text)
    number = _number(point.name, text, whole=point.kind == "integer")
    low, high = point.minimum, point.maximum
    if not (float("-inf") if low is None else low) <= number <= (float("inf") if high is None else high):
        raise UserError(f"{point.name} cannot be {text}", hint=f"it lies between {low} and {high}")
    return number


def _fits(label: Label) -> bool:
    """Whether a line of the file says what could be said now; the file may be older, or written by hand."""
    if label.removed or _kind(label.name) is None:
        return True
    try:
        return _measure(label.name, str(label.value)) == label.value
    except UserError:
        return False


def _kind(name: str) -> str | None:
    return "count" if name.startswith(f"{MIX}.") else _KINDS.get(name)


def _measure(name: str, text: str) -> Value:
    """The value of one of the measures; what a result says is no matter of opinion."""
    kind = _kind(name)
    if name in RECORDED or kind == "table":
        what = "is recorded, not judged" if name in RECORDED else "is a table"
        raise UserError(f"{name} {what}: a label cannot change it", hint='label what is judged, as "failure_class"')
    if kind == "yes_no":
        return _switch(name, text)
    if kind == "label":
        if name == FAILURE_CLASS and text not in _CLASSES:
            raise UserError(f'{name} cannot be "{text}"', hint=did_you_mean(text, _CLASSES, limit=len(_CLASSES)))
        return text
    number = _number(name, text, whole=kind == "count")
    if number < 0:
        raise UserError(f"{name} cannot be {text}", hint="it is never below zero")
    return number


def _switch(name: str, text: str) -> bool:
    if text.lower() not in _SWITCHES:
        raise UserError(f'{name} is true or false, not "{text}"')
    return _SWITCHES[text.lower()]


def _number(name: str, text: str, *, whole: bool) -> int | float:
    try:
        number = int(text) if whole else float(text)
    except ValueError:
        raise UserError(f'{name} is a {"whole " if whole else ""}number, not "{text}"') from None
    if not -_MOST < number < _MOST:
        raise UserError(f"{name} cannot be {text}", hint="it is a number")
    return number


def _guessed(text: str) -> Value:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if -_MOST < number < _MOST else text
    return text
