"""An analysis as text: which trials it is about, what was found in short, what the judge says. Pure but for labels."""

import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from terminalbench.analytics.judge.output import kept_findings
from terminalbench.analytics.judge.request import JudgeResult
from terminalbench.analytics.labels import Labels, agreements, effective, read_labels
from terminalbench.analytics.metrics import ProfileMetrics
from terminalbench.analytics.run import AnalysisResult
from terminalbench.analytics.selection import SelectedBatch
from terminalbench.text.foreign import printable, shortened
from terminalbench.text.numbers import UNKNOWN, percent, plural
from terminalbench.text.outcomes import word
from terminalbench.text.table import Columns, columns

_SHOWN = 12
_REASONS = 8
_COUNTED = ("strategy", "root_cause", "mcp_use")


def listing(chosen: Sequence[SelectedBatch]) -> str:
    """The trials, a line each."""
    rows = [["batch", "task", "profile", "attempt", "outcome", "trial"]]
    for part in chosen:
        for cell in part.cells:
            name = cell.row.name if cell.row is not None else "-"
            rows.append([part.view.batch, cell.task.id, cell.profile, str(cell.attempt), word(cell.state), name])
    return columns(rows, left=(0, 1, 2, 4, 5))


def summary(result: AnalysisResult, place: str, report: Path | None, width: int = 80) -> str:
    """Return what was found, in short, and where all of it is: in `place`. Lines of at most `width`."""
    parts = []
    if result.profiles:
        parts += [
            f"{plural(result.planned, 'trial')}: {result.read} read, {result.reused} unchanged",
            _profiles(result, width),
        ]
    names = shortened(result.profiles, width // 3)
    failures = [[names[p], what, str(n)] for p, m in result.profiles.items() for what, n in m.failure_classes.items()]
    if failures:
        parts.append(columns([["profile", "failure class", "trials"], *failures], left=(0, 1)))
    limits: list[str] = []
    if result.profiles and result.comparison is not None:
        parts.append("\n".join(_wrapped(contrast.sentence, width) for contrast in result.comparison.contrasts))
        limits = [*result.comparison.departures, *result.comparison.warnings]
    if result.judged is not None:
        parts.append(_judged(result, result.judged))
    parts.append("\n".join([*_some("missing", result.missing, width), *_some("note", [*limits, *result.notes], width)]))
    if result.written or result.judged is not None:
        first = f", read {report.name} first" if report is not None else ""
        parts.append(f"written to {place}{first}")
    return "\n\n".join(filter(None, parts))


def _wrapped(text: str, width: int) -> str:
    return textwrap.fill(printable(text), width, subsequent_indent="    ", break_on_hyphens=False)


def _profiles(result: AnalysisResult, width: int) -> str:
    names = shortened(result.profiles, width // 3)
    counts = Columns[tuple[str, ProfileMetrics]]({
        "profile": lambda one: names[one[0]],
        "passed": lambda one: str(one[1].passed),
        "measured": lambda one: f"{one[1].measured}/{one[1].planned}",
        "pass rate": lambda one: percent(one[1].rate),
        "flagged": lambda one: str(len(one[1].flagged)),
    })  # fmt: skip
    did = Columns[tuple[str, ProfileMetrics]]({
        "profile": lambda one: names[one[0]],
        "calls": lambda one: _mean(one[1], "tool_calls"),
        "errors": lambda one: _mean(one[1], "tool_errors"),
        "loops": lambda one: _mean(one[1], "loops"),
        "backtracks": lambda one: _mean(one[1], "backtracks"),
        "tested": lambda one: percent(one[1].measures["tested_before_finish"].mean),
    })  # fmt: skip
    tables = [
        columns([table.head, *table.rows]) for table in (one.of(result.profiles.items()) for one in (counts, did))
    ]
    return "\n\n".join(tables) + "\npass rate: mean over tasks; below it: means over trials"


def _some(kind: str, lines: Sequence[str], width: int) -> list[str]:
    rest = len(lines) - _SHOWN
    more = [f"{kind}: and {rest} more"] if rest > 0 else []
    return [*(_wrapped(f"{kind}: {line}", width) for line in lines[:_SHOWN]), *more]


def _mean(metrics: ProfileMetrics, measure: str) -> str:
    value = metrics.measures[measure].mean
    return UNKNOWN if value is None else f"{value:.1f}"


def _judged(result: AnalysisResult, judged: JudgeResult) -> str:
    """Return what came of it, for a person: the sentence, the answers counted, the summary, what was not judged and
    why."""
    parts = [judged.sentence(), _counts(result, judged)]
    if judged.synthesis is not None and judged.synthesis.summary:
        parts.append(printable(" ".join(judged.synthesis.summary.split())))
    labels = Labels([line for batch in result.folders for line in read_labels(batch.analytics).lines])
    lines = [f"agreement with people: {entry.sentence()}" for entry in agreements(judged.findings, labels)]
    lines += [f"note: {printable(note)}" for note in judged.notes]
    reasons = Counter(f"{entry.rubric}: {entry.reason}" for entry in judged.not_judged)
    lines += [f"not judged: {count} x {printable(reason)}" for reason, count in reasons.most_common(_REASONS)]
    if len(reasons) > _REASONS:
        lines.append(f"not judged: {plural(len(reasons) - _REASONS, 'further reason')} in judge.json")
    return "\n\n".join(filter(None, [*parts, "\n".join([*lines, "with quotes in judge.md"])]))


def _counts(result: AnalysisResult, judged: JudgeResult) -> str:
    """Return how often each label was given, by profile: the person's where there is one."""
    profiles = {f"{c.row.job}/{c.row.name}": c.profile for view in result.views for c in view.cells if c.row}
    said = kept_findings(result.output, result.folders, {finding.trial for finding in judged.findings})
    found: Counter[tuple[str, str, str]] = Counter()
    for finding in effective(said).values():
        if isinstance(finding.value, str) and finding.name in _COUNTED:
            found[finding.name, profiles.get(finding.trial, "?"), finding.value] += 1
    rows = [["question", "profile", "answer", "trials"]]
    rows += [[*key, str(count)] for key, count in sorted(found.items(), key=lambda e: (e[0][:2], -e[1], e[0]))]
    return columns(rows, left=(0, 1, 2)) if len(rows) > 1 else ""
