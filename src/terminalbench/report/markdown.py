"""A report as short Markdown: the same answer and limits, without pictures."""

import re
from collections.abc import Sequence

from terminalbench.analytics.model import Contrast, Estimate, Metric, ProfileSummary
from terminalbench.records.trial import Outcome
from terminalbench.report.html import capitalised, interval_text, rate_range
from terminalbench.report.model import (
    BatchLine,
    DeliveryRow,
    FlakyRow,
    Report,
    SupersededRow,
    ToolUseRow,
    TrialGroup,
    WorkflowUse,
)
from terminalbench.report.sentences import headlines, looks_sentence, method_sentence
from terminalbench.report.text import picked
from terminalbench.text import outcomes
from terminalbench.text.foreign import short
from terminalbench.text.numbers import amount, moment, p_value, percent, plural
from terminalbench.text.reasons import DOUBTFUL_COUNT
from terminalbench.text.table import Columns

ROWS = 60
"""How many rows a table shows; what is more is counted and found in report.html or metrics_detail.csv."""

MARKED = 20
"""Up to so many attempts at a task are shown as marks; more are counted."""

_SPECIAL = re.compile(r"([\\`*_\[\]>|#!~])")


def render_markdown(report: Report) -> str:
    """The whole text."""
    parts = [
        f"# {escaped(report.title)}",
        f"Batch {escaped(report.batch)}{f', {moment(report.created_at)}' if report.created_at else ''}. "
        f"{escaped(report.facts[0][1])}. The same with pictures: [report.html](report.html).",
        "\n".join(f"- **{line.kind}**: {escaped(line.text)}" for line in headlines(report)),
        escaped(method_sentence(report.contrasts)),
        *(["Next:\n\n" + "\n".join(f"- {escaped(line)}" for line in report.next_steps)] if report.next_steps else []),
        *(["## Why they failed\n\n" + _causes(report)] if report.causes else []),
        "## Profiles\n\n" + _written(PROFILES, [line.summary for line in report.profiles]),
        *(_contrast(contrast, report.comparison.metric) for contrast in report.contrasts),
        "## Tasks\n\n" + _tasks(report),
    ]
    parts += [
        f"## {title}\n\n{text}"
        for title, text in (
            ("Trend", _written(TREND, [(line, point) for line in report.trend for point in line.points])),
            ("Failure classes", _groups(report.failures)),
            ("Findings of the judge", _groups(report.judged, "With quotes in [judge.md](judge.md).\n\n")),
            ("Tool calls", _written(TOOLS, report.tools)),
            (
                "Guarded workflows",
                "\n\n".join(filter(None, (_written(WORKFLOWS, report.workflows), _groups(report.given_up)))),
            ),
            ("Flaky tasks", _written(FLAKY, report.flaky)),
            ("Did the agent get its configuration?", _written(DELIVERY, report.delivery)),
            ("Doubtful results", _groups(report.suspects, f"Flagged, not changed: {DOUBTFUL_COUNT}.\n\n")),
            ("Not measured", _groups(report.not_measured)),
            ("Run again", _written(SUPERSEDED, report.superseded)),
        )
        if text
    ]
    facts = [f"- {name}: {escaped(value)}" for name, value in report.facts]
    facts += [f"- {escaped(short(note, 400))}" for note in report.notes[:ROWS]]
    parts.append("## Plan\n\n" + "\n".join(facts))
    return "\n\n".join(parts) + "\n"


PROFILES = Columns(picked(
    "profile", "pass rate", "interval", "of planned", "measured", "passed", "failed", "cost", "a success", "agent time",
))  # fmt: skip
TREND = Columns[tuple[BatchLine, ProfileSummary]]({
    "batch": lambda item: item[0].batch,
    "profile": lambda item: item[1].profile,
    "pass rate": lambda item: percent(item[1].rate),
    "measured": lambda item: f"{item[1].measured}/{item[1].planned}",
})  # fmt: skip
GROUPS = Columns[TrialGroup]({
    "trials": lambda group: str(group.count),
    "profile": lambda group: group.profile,
    "what": lambda group: short(group.what, 160) + (f" ({group.labelled} by a person)" if group.labelled else ""),
    "on": lambda group: _tasks_of(group),
})  # fmt: skip
TOOLS = Columns[ToolUseRow]({
    "profile": lambda use: use.profile,
    "calls by kind": lambda use: ", ".join(f"{kind} {count}" for kind, count in list(use.calls.items())[:10]),
    "trials": lambda use: str(use.trials),
})  # fmt: skip
WORKFLOWS = Columns[WorkflowUse]({
    "profile": lambda use: use.profile,
    "trials": lambda use: str(use.trials),
    "given up": lambda use: str(use.given_up),
    "retries": lambda use: str(use.retries),
    "escalations": lambda use: str(use.escalations),
    "that helped": lambda use: str(use.helped),
})  # fmt: skip
FLAKY = Columns[FlakyRow]({
    "task": lambda flaky: flaky.trial.task,
    "profile": lambda flaky: flaky.trial.cell.profile,
    "passed": lambda flaky: f"{flaky.summary.passed} of {flaky.summary.measured}",
    "interval": lambda flaky: rate_range(flaky.summary.interval),
})  # fmt: skip
DELIVERY = Columns[DeliveryRow]({
    "profile": lambda item: item.profile,
    "part": lambda item: item.part,
    "in trials": lambda item: f"{item.reached} of {item.known}",
    "unknown": lambda item: str(item.unknown),
    "detail": lambda item: item.detail,
})  # fmt: skip
SUPERSEDED = Columns[SupersededRow]({
    "profile": lambda item: item.profile, "trials": lambda item: str(item.count), "cost": lambda item: item.cost,
})  # fmt: skip


def _written[T](columns: Columns[T], items: Sequence[T]) -> str:
    return table(*columns.of(items)) if items else ""


def _groups(groups: Sequence[TrialGroup], before: str = "") -> str:
    return before + _written(GROUPS, groups) if groups else ""


def _tasks_of(group: TrialGroup) -> str:
    """The tasks of its trials, as far as there is room."""
    tasks = list(dict.fromkeys(ref.task for ref in group.trials))
    return ", ".join(tasks[:4]) + (" and more" if len(tasks) > 4 or group.count > len(group.trials) else "")


def _causes(report: Report) -> str:
    lines = []
    for profile, found in report.causes_of_profiles():
        lines.append(f"{escaped(profile)}: {plural(found[0].cause.of, 'trial')} did not pass")
        for one in found:
            cause = one.cause
            step = "" if cause.step is None or not cause.did else f"; step {cause.step}: {cause.did}"
            said = f'the verifier said "{cause.check}"' if cause.check else cause.reason
            shown = f"{cause.count} of {cause.of} {cause.words} ({cause.what}), as {cause.task}: {said}{step}"
            lines.append(f"- {escaped(shown)}" + ("" if one.control else f". Try: {escaped(cause.advice)}"))
        lines.append("")
    return "\n".join(lines).rstrip()


def _contrast(contrast: Contrast, metric: Metric) -> str:
    lines = [
        f"## {escaped(contrast.new)} vs {escaped(contrast.old)}: {contrast.verdict}",
        "",
        escaped(contrast.sentence),
        "",
    ]
    ways = ("measured trials only", "all planned trials")
    names = ways if contrast.rule == "exclude" else ways[::-1]
    columns = Columns[tuple[str, Estimate]]({
        "counting": lambda way: way[0],
        "difference": lambda way: amount(way[1].difference, metric),
        "tasks like these": lambda way: interval_text(way[1].interval, metric),
        "these tasks": lambda way: interval_text(way[1].suite_interval, metric),
        "p": lambda way: p_value(way[1].p),
        "better, worse, equal": lambda way: f"{way[1].wins}, {way[1].losses}, {way[1].ties}",
    })  # fmt: skip
    lines.append(_written(columns, list(zip(names, (contrast.estimate, contrast.other_way), strict=True))))
    notes = [f"Cannot be compared: {escaped(reason)}." for reason in contrast.refused]
    notes += [f"{escaped(capitalised(looks_sentence(contrast)))}."] if contrast.sequential else []
    if contrast.p_adjusted is not None:
        notes.append(f"p after Holm: {p_value(contrast.p_adjusted)}.")
    if contrast.smallest_detectable is not None and contrast.verdict == "inconclusive":
        notes.append(
            f"Smallest difference this size can show: {amount(contrast.smallest_detectable, metric, sign=False)}."
        )
    if contrast.trials_needed is not None and contrast.effect is not None:
        wanted = amount(abs(contrast.effect), metric, sign=False)
        notes.append(f"To show one of {wanted}: about {plural(contrast.trials_needed, 'trial')}.")
    notes += [f"{escaped(capitalised(note))}." for note in contrast.notes]
    notes += [f"Warning: {escaped(warning)}." for warning in contrast.warnings]
    return "\n".join([*lines, "", " ".join(notes)]) if notes else "\n".join(lines)


def _tasks(report: Report) -> str:
    many = max((len(cell) for task in report.tasks for cell in task.cells), default=0) > MARKED
    shown = outcomes.fractions if many else outcomes.marks
    rows = [[task.label, *(shown([ref.cell.state for ref in cell]) for cell in task.cells)] for task in report.tasks]
    live = any(ref.cell.state == outcomes.RUNNING for task in report.tasks for cell in task.cells for ref in cell)
    marked = (*(outcomes.LOST if many else Outcome), *([outcomes.RUNNING] if live else []))
    legend = ", ".join(f"`{outcomes.mark(o)}` {outcomes.word(o)}" for o in marked)
    said = f"Passed/measured, then how many were not measured: {legend}." if many else f"Marks: {legend}."
    return f"{table(['task', *report.profile_names()], rows)}\n\n{said}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of somebody's words; rows beyond `ROWS` are counted."""
    lines = [
        [escaped(name) for name in head],
        ["---"] * len(head),
        *([escaped(field) for field in row] for row in rows[:ROWS]),
    ]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return text if len(rows) <= ROWS else f"{text}\n\nand {plural(len(rows) - ROWS, 'more row')}, in report.html"


def escaped(value: str) -> str:
    """Somebody else's words on one line, with nothing that Markdown or a browser would act on."""
    return _SPECIAL.sub(r"\\\1", short(value, 100_000)).replace("<", "&lt;").replace("://", ":\u200b//")
