"""A report as short Markdown: the same answer and limits, without pictures."""

import re
from collections.abc import Sequence

from terminalbench.analytics.model import Contrast, Metric
from terminalbench.records.trial import Outcome
from terminalbench.report.html import interval_text
from terminalbench.report.model import Report, TrialGroup
from terminalbench.report.sentences import headlines, looks_sentence, method_sentence
from terminalbench.text import outcomes
from terminalbench.text.doubts import DOUBTFUL_COUNT
from terminalbench.text.foreign import short
from terminalbench.text.names import named
from terminalbench.text.numbers import (
    NOTHING,
    amount,
    dollars,
    duration,
    moment,
    p_value,
    percent,
    percents,
    plural,
)

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
        "## Profiles\n\n" + _profiles(report),
        *(_contrast(contrast, report.comparison.metric) for contrast in report.contrasts),
        "## Tasks\n\n" + _tasks(report),
    ]
    if report.trend:
        parts.append("## Trend\n\n" + _trend(report))
    if report.failures:
        parts.append("## Failure classes\n\n" + _groups(report, report.failures))
    if report.judged:
        parts.append(
            "## Findings of the judge\n\nWith quotes in [judge.md](judge.md).\n\n" + _groups(report, report.judged)
        )
    if report.tools:
        parts.append("## Tool calls\n\n" + _tools(report))
    if report.workflows:
        parts.append("## Guarded workflows\n\n" + _workflows(report))
    if report.flaky:
        rows = [
            [f.label, f.profile, f"{f.passed} of {f.measured}", percents(*f.interval) if f.interval else NOTHING]
            for f in report.flaky
        ]
        parts.append("## Flaky tasks\n\n" + table(["task", "profile", "passed", "interval"], rows))
    if report.delivery:
        parts.append("## Did the agent get its configuration?\n\n" + _delivery(report))
    if report.suspects:
        parts.append(
            f"## Doubtful results\n\nFlagged, not changed: {DOUBTFUL_COUNT}.\n\n" + _groups(report, report.suspects)
        )
    if report.not_measured:
        parts.append("## Not measured\n\n" + _groups(report, report.not_measured))
    if report.superseded:
        rows = [[item.profile, str(item.count), item.cost] for item in report.superseded]
        parts.append("## Run again\n\n" + table(["profile", "trials", "cost"], rows))
    facts = [f"- {name}: {escaped(value)}" for name, value in report.facts]
    facts += [f"- {escaped(short(note, 400))}" for note in report.notes[:ROWS]]
    parts.append("## Plan\n\n" + "\n".join(facts))
    return "\n\n".join(parts) + "\n"


def _profiles(report: Report) -> str:
    head = [
        "profile",
        "pass rate",
        "interval",
        "of all planned",
        "coverage",
        "passed",
        "failed",
        "cost",
        "per success",
        "agent time",
    ]
    rows = []
    for line in report.profiles:
        s = line.summary
        each = dollars(s.cost_per_success) if s.passed and not s.no_model else NOTHING
        ends = percents(s.interval.low, s.interval.high) if s.interval else NOTHING
        rows.append([
            named(s.profile, oracle=s.oracle), percent(s.rate), ends, percent(s.rate_all),
            f"{s.measured}/{s.planned}", str(s.passed), str(s.measured - s.passed), line.cost, each,
            duration(s.mean_agent_sec),
        ])  # fmt: skip
    return table(head, rows)


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
    rows = [
        [
            name,
            amount(e.difference, metric),
            interval_text(e.interval, metric),
            interval_text(e.suite_interval, metric),
            p_value(e.p),
            f"{e.wins}, {e.losses}, {e.ties}",
        ]
        for name, e in zip(names, (contrast.estimate, contrast.other_way), strict=True)
    ]
    head = ["counting", "difference", "tasks like these", "these tasks", "p", "better, worse, equal"]
    lines.append(table(head, rows))
    notes = [f"Cannot be compared: {escaped(reason)}." for reason in contrast.refused]
    notes += [escaped(looks_sentence(contrast))] if contrast.sequential else []
    if contrast.p_adjusted is not None:
        notes.append(f"p after Holm: {p_value(contrast.p_adjusted)}.")
    if contrast.smallest_detectable is not None:
        notes.append(
            f"Smallest difference this size can show: {amount(contrast.smallest_detectable, metric, sign=False)}."
        )
    if contrast.trials_needed is not None and contrast.effect is not None:
        wanted = amount(abs(contrast.effect), metric, sign=False)
        notes.append(f"To show one of {wanted}: about {plural(contrast.trials_needed, 'trial')}.")
    notes += [f"{escaped(note[:1].upper() + note[1:])}." for note in contrast.notes]
    notes += [f"Warning: {escaped(warning)}." for warning in contrast.warnings]
    return "\n".join([*lines, "", " ".join(notes)]) if notes else "\n".join(lines)


def _tasks(report: Report) -> str:
    many = max((len(cell) for task in report.tasks for cell in task.cells), default=0) > MARKED
    shown = outcomes.fractions if many else outcomes.marks
    rows = [[task.label, *(shown([ref.state for ref in cell]) for cell in task.cells)] for task in report.tasks]
    live = any(ref.state == outcomes.RUNNING for task in report.tasks for cell in task.cells for ref in cell)
    marked = (*(outcomes.LOST if many else Outcome), *([outcomes.RUNNING] if live else []))
    legend = ", ".join(f"`{outcomes.mark(o)}` {outcomes.word(o)}" for o in marked)
    said = f"Passed/measured, then how many were not measured: {legend}." if many else f"Marks: {legend}."
    return f"{table(['task', *report.profile_names()], rows)}\n\n{said}"


def _trend(report: Report) -> str:
    rows = [
        [line.batch, point.profile, percent(point.rate), f"{point.measured}/{point.planned}"]
        for line in report.trend
        for point in line.points
    ]
    return table(["batch", "profile", "pass rate", "coverage"], rows)


def _groups(report: Report, groups: Sequence[TrialGroup]) -> str:
    names = report.profile_names()
    rows = []
    for group in groups:
        tasks = list(dict.fromkeys(report.tasks[ref.task].label for ref in group.trials))
        shown = ", ".join(tasks[:4]) + (" and more" if len(tasks) > 4 or group.count > len(group.trials) else "")
        people = f" ({group.labelled} by a person)" if group.labelled else ""
        rows.append([str(group.count), names[group.profile], short(group.what, 160) + people, shown])
    return table(["trials", "profile", "what", "on"], rows)


def _tools(report: Report) -> str:
    names = report.profile_names()
    rows = [
        [
            names[use.profile],
            ", ".join(f"{kind} {count}" for kind, count in list(use.calls.items())[:10]),
            str(use.trials),
        ]
        for use in report.tools
    ]
    return table(["profile", "calls by kind", "trials"], rows)


def _workflows(report: Report) -> str:
    names = report.profile_names()
    rows = [
        [names[use.profile], *map(str, (use.trials, use.given_up, use.retries, use.escalations, use.helped))]
        for use in report.workflows
    ]
    rendered = table(["profile", "trials", "given up", "retries", "escalations", "that helped"], rows)
    return f"{rendered}\n\n{_groups(report, report.given_up)}" if report.given_up else rendered


def _delivery(report: Report) -> str:
    names = report.profile_names()
    rows = [
        [names[item.profile], item.part, f"{item.reached} of {item.known}", str(item.unknown), item.detail]
        for item in report.delivery
    ]
    return table(["profile", "part", "in trials", "unknown", "detail"], rows)


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
