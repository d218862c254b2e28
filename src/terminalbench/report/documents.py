"""A report as one HTML file: no script, no network, nothing from outside; what agents wrote is text. And as short
Markdown: the same answer and limits, without pictures.

Templates of the report and of the dashboard are made alike: values are escaped, a name that they lack is an error.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from terminalbench.analytics.model import Contrast, Estimate, Interval, Metric, ProfileSummary
from terminalbench.records.trial import Outcome
from terminalbench.report import pictures, sentences
from terminalbench.report.charts import chart_css
from terminalbench.report.charts.svg import esc
from terminalbench.report.model import (
    BatchLine,
    DeliveryRow,
    FlakyRow,
    Report,
    SupersededRow,
    ToolUseRow,
    TrialGroup,
    TrialRef,
    WorkflowUse,
)
from terminalbench.report.sentences import headlines, looks_sentence, method_sentence
from terminalbench.report.text import picked
from terminalbench.text import numbers, outcomes
from terminalbench.text.foreign import short, visible
from terminalbench.text.numbers import amount, moment, p_value, percent, plural
from terminalbench.text.outcomes import RUNNING, word
from terminalbench.text.reasons import DOUBTFUL_COUNT
from terminalbench.text.table import Columns

LINKED_TRIALS = 4000
"""Up to so many trials, every one is linked; beyond, those that passed are named by their attempt alone, and where
even the others are so many, all are."""

LISTED_CELLS = 60
REASON_LETTERS = 160


def render_html(report: Report) -> str:
    """The whole page."""
    template = _environment(report.comparison.metric).get_template("report.html")
    passed = sum(line.summary.passed for line in report.profiles)
    few = report.planned <= LINKED_TRIALS
    linked = [o for o in Outcome if few or (o is not Outcome.PASSED and report.planned - passed <= LINKED_TRIALS)]
    drawn = {name: make(report) for name, make in pictures.PICTURES.items()}
    # The charts escape every text they are given: see charts/svg.py.
    charts = {
        name: {"svg": Markup(one.svg) if one.svg else None, "note": one.note}  # noqa: S704
        for name, one in drawn.items()
    }
    return template.render(
        report=report,
        comparison=report.comparison,
        css=Markup(template_text("report.css")),  # noqa: S704  our own file
        chart_css=Markup(chart_css()),  # noqa: S704  our own file
        headlines=sentences.headlines(report),
        method=sentences.method_sentence(report.contrasts),
        anchors={task.ref: f"t{index}" for index, task in enumerate(report.tasks)},
        labels={task.ref: task.label for task in report.tasks},
        linked=linked,
        brief=not few,
        listed_cells=LISTED_CELLS,
        doubtful_count=DOUBTFUL_COUNT,
        charts=charts,
    )


@cache
def _environment(metric: Metric) -> jinja2.Environment:
    environment = templates(
        jinja2.FunctionLoader(template_text), finalize=lambda value: visible(value) if type(value) is str else value
    )
    environment.filters |= {
        "rate": numbers.percent,
        "range": rate_range,
        "usd": numbers.dollars,
        "duration": numbers.duration,
        "moment": numbers.moment,
        "difference": lambda value: numbers.amount(value, metric),
        "differences": lambda ends: interval_text(ends, metric),
        "size": lambda value: numbers.amount(value, metric, sign=False),
        "p": numbers.p_value,
        "p_equation": numbers.p_equation,
        "plural": numbers.plural,
        "looks": lambda contrast: capitalised(sentences.looks_sentence(contrast)),
        "missing": lambda contrast: capitalised(sentences.missing_sentence(contrast)),
        "times": numbers.times,
        "short": short,
        "word": word,
        "attempts": _attempts,
        "cells": _cells,
        "reasons": _reasons,
    }
    return environment


def capitalised(text: str) -> str:
    """A sentence as it begins."""
    return text[:1].upper() + text[1:]


def rate_range(interval: Interval | None) -> str:
    """The ends of an interval of a rate."""
    return numbers.NOTHING if interval is None else numbers.percents(interval.low, interval.high)


def interval_text(interval: Interval | None, metric: Metric) -> str:
    """The ends of an interval of differences."""
    return numbers.NOTHING if interval is None else numbers.between(interval.low, interval.high, metric)


def template_text(name: str) -> str:
    """A file of the templates of reports: also their style, which other pages share."""
    return files("terminalbench.report").joinpath("templates", name).read_text(encoding="utf-8")


def _attempts(cell: Sequence[TrialRef], linked: Sequence[Outcome]) -> Markup:
    """The trials of a cell by outcome, each attempt a link to its folder where its outcome is one of `linked`."""
    parts = []
    for outcome in (*Outcome, RUNNING):
        found = [(ref.href, ref.cell.attempt) for ref in cell if ref.cell.state == outcome]
        if found:
            shown = " ".join(
                f'<a href="{esc(href)}">{attempt}</a>' if href and outcome in linked else str(attempt)
                for href, attempt in found
            )
            parts.append(f'<span class="o {outcome}">{word(outcome)}</span> {shown}')
    return Markup("; ".join(parts))  # noqa: S704  the only foreign text, the link, is escaped


def _cells(refs: Sequence[TrialRef]) -> list[tuple[TrialRef, int]]:
    """The first trial of each cell behind some trials, in order, and how many of them the cell holds."""
    found: dict[tuple[int, int], list[TrialRef]] = defaultdict(list)
    for ref in refs:
        found[ref.at].append(ref)
    return [(mine[0], len(mine)) for mine in found.values()]


def _reasons(cell: Sequence[TrialRef], brief: bool) -> list[str]:
    """Return why trials of a cell did not pass, each reason once; `brief` keeps the first, shorter."""
    found: dict[str, None] = {}
    for ref in cell:
        if ref.cell.outcome is Outcome.PASSED:
            continue
        reason = ref.cell.reason if ref.cell.outcome is not Outcome.FAILED else None
        failure = f"{ref.failure} ({ref.failure_by} says)" if ref.failure_by else ref.failure
        error = str(ref.trial.error_class) if ref.trial is not None and ref.trial.error_class else None
        text = ": ".join(part for part in (failure or error, reason) if part)
        if text:
            found[short(text, REASON_LETTERS // 3 if brief else REASON_LETTERS)] = None
    return list(found)[: 1 if brief else 3]


def templates(loader: jinja2.BaseLoader, **more: Any) -> jinja2.Environment:
    """An environment of templates; `more` are further settings of Jinja."""
    return jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, **more
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
