"""A report as one HTML file: no script, no network, nothing from outside; what agents wrote is text.

Templates of the report and of the dashboard are made alike: values are escaped, a name that they lack is an error.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from terminalbench.analytics.model import Interval, Metric
from terminalbench.records.trial import Outcome
from terminalbench.report import pictures, sentences
from terminalbench.report.charts import chart_css
from terminalbench.report.charts.svg import esc
from terminalbench.report.model import Report, TrialRef
from terminalbench.text import numbers
from terminalbench.text.foreign import short, visible
from terminalbench.text.outcomes import RUNNING, word
from terminalbench.text.reasons import DOUBTFUL_COUNT

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
