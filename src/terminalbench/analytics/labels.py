"""What people say about trials, append-only, before any analyzer's word; and how far the judge agrees with them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from math import nextafter, sqrt
from pathlib import Path
from typing import Any, Literal

import msgspec

from terminalbench.analytics.findings.analyzers import MEASURES, MIX, RECORDED
from terminalbench.analytics.findings.failure import FAILURE_CLASSES
from terminalbench.analytics.judge.rubric import NAMES, Point, load_rubric
from terminalbench.errors import UserError, did_you_mean
from terminalbench.index.totals import wilson
from terminalbench.json_files import append_jsonl, read_jsonl
from terminalbench.records.trial import Finding
from terminalbench.text.numbers import percent, percents, plural

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


FEWEST = 10
"""Pairs below which an interval for kappa would be a fiction."""
_Z = 1.959963984540054


class Agreement(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Judge and people on one name. `unjudged` labels are of trials that the judge said nothing about.

    For numbers there is no share of agreement, only `mean_difference`, the mean distance of the two.
    """

    name: str
    pairs: int
    agreed: int | None = None
    low: float | None = None
    high: float | None = None
    kappa: float | None = None
    kappa_low: float | None = None
    kappa_high: float | None = None
    mean_difference: float | None = None
    unjudged: int = 0

    def sentence(self) -> str:
        """It in one line."""
        parts = [f"{self.name}: {self.pairs} labelled and judged"]
        if self.mean_difference is not None:
            parts.append(f"mean distance {self.mean_difference:.2f}")
        if self.agreed is not None and self.low is not None and self.high is not None:
            parts.append(f"{percent(self.agreed / self.pairs)} agree ({percents(self.low, self.high)})")
            parts.append(self._kappa())
        if self.unjudged:
            parts.append(f"{self.unjudged} labelled but not judged")
        return ", ".join(parts)

    def _kappa(self) -> str:
        if self.kappa is None:
            return "kappa not defined (only one value was given, or one pair)"
        if self.kappa_low is None or self.kappa_high is None:
            return f"kappa {self.kappa:.2f} (no interval from fewer than {FEWEST} pairs)"
        return f"kappa {self.kappa:.2f} ({self.kappa_low:.2f} to {self.kappa_high:.2f})"


def agreements(findings: Iterable[Finding], labels: Labels) -> list[Agreement]:
    """One entry for each name that people labelled, against what the judge itself said."""
    judged = {(f.trial, f.name): f.value for f in findings if f.analyzer.startswith("judge:")}
    current = labels.current()
    found = []
    for name in sorted({name for _, name in current}):
        said = [(judged.get(key), label.value) for key, label in current.items() if key[1] == name]
        both = [(judge, person) for judge, person in said if judge is not None and person is not None]
        if not both and not any(finding_name == name for _, finding_name in judged):
            continue  # the judge is never asked about it
        found.append(agreement(name, both, len(said) - len(both)))
    return found


def agreement(name: str, pairs: Sequence[tuple[Any, Any]], unjudged: int = 0) -> Agreement:
    """Return how far the two values of each pair agree; `unjudged` pairs lack one."""
    if not pairs:
        return Agreement(name=name, pairs=0, unjudged=unjudged)
    apart = [abs(a - b) for a, b in pairs if type(a) in (int, float) and type(b) in (int, float)]
    if len(apart) == len(pairs):
        distance = sum(apart) / len(apart)
        return Agreement(name=name, pairs=len(pairs), mean_difference=distance, unjudged=unjudged)
    agreed = sum(judge == person for judge, person in pairs)
    low, high = wilson(agreed / len(pairs), len(pairs))
    kappa, error = cohens_kappa(pairs)
    half = _Z * error if error is not None and len(pairs) >= FEWEST else None
    return Agreement(
        name=name,
        pairs=len(pairs),
        agreed=agreed,
        low=low,
        high=high,
        kappa=kappa,
        kappa_low=None if kappa is None or half is None else max(-1.0, kappa - half),
        kappa_high=None if kappa is None or half is None else min(1.0, kappa + half),
        unjudged=unjudged,
    )


def cohens_kappa(pairs: Sequence[tuple[object, object]]) -> tuple[float | None, float | None]:
    """Cohen's kappa and its large-sample standard error (Fleiss, Cohen and Everitt 1969); None when not defined."""
    n = len(pairs)
    values = sorted({value for pair in pairs for value in pair}, key=repr)
    cell = Counter(pairs)
    first = {v: sum(cell[v, w] for w in values) / n for v in values}
    second = {v: sum(cell[w, v] for w in values) / n for v in values}
    observed = sum(cell[v, v] for v in values) / n
    chance = sum(first[v] * second[v] for v in values)
    if n < 2 or chance >= 1.0:
        return None, None
    kappa = (observed - chance) / (1 - chance)
    same = sum(cell[v, v] / n * ((1 - chance) - (first[v] + second[v]) * (1 - observed)) ** 2 for v in values)
    apart = sum(cell[v, w] / n * (second[v] + first[w]) ** 2 for v in values for w in values if v != w)
    variance = same + (1 - observed) ** 2 * apart - (observed * chance - 2 * chance + observed) ** 2
    return kappa, sqrt(max(0.0, variance) / n) / (1 - chance) ** 2
