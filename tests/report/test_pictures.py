"""A picture is drawn where it shows a difference; where all is the same, words say so."""

from collections.abc import Callable
from dataclasses import is_dataclass, replace
from typing import Any

import msgspec
import pytest

from support.reports import SMALL, measured
from terminalbench.report import pictures
from terminalbench.report.build import build_report
from terminalbench.report.documents import render_html
from terminalbench.report.model import Report


def small() -> Report:
    return build_report(measured(SMALL), [measured(SMALL, number=1)])


def changed(items: Any, **values: Any) -> list[Any]:
    """Each with those values: a dataclass, or a struct."""
    return [(replace if is_dataclass(item) else msgspec.structs.replace)(item, **values) for item in items]


def same_differences(report: Report) -> Report:
    contrasts = [
        one
        for c in report.contrasts
        for estimate in changed([c.estimate], difference=0.0, interval=None, suite_interval=None)
        for one in changed([c], estimate=estimate)
    ]
    return replace(report, comparison=changed([report.comparison], contrasts=contrasts)[0])


def same_costs(report: Report) -> Report:
    first = report.profiles[0].summary
    summaries = changed((p.summary for p in report.profiles), rate=1.0, cost_usd=first.cost_usd, planned=first.planned)
    lines = zip(report.profiles, summaries, strict=True)
    return replace(report, profiles=[replace(line, summary=summary) for line, summary in lines])


FLAT: dict[str, tuple[Callable[[Report], pictures.Picture], Callable[[Report], Report], str]] = {
    "forest": (pictures.forest_picture, same_differences, "No two profiles differ."),
    "pareto": (pictures.pareto_picture, same_costs, "A trial costs $0.15 with every profile."),
    "tools": (
        pictures.tools_picture,
        lambda r: replace(r, tools=changed(r.tools, calls={"run": 6}, trials=3)),
        "2.0 calls a trial of run.",
    ),
    "backtracks": (
        pictures.effort_picture,
        lambda r: replace(r, efforts=changed(r.efforts, backtracks=1)),
        "All trials have 1 backtrack.",
    ),
    "tokens": (
        pictures.effort_picture,
        lambda r: replace(r, efforts=changed(r.efforts, tokens=1000)),
        "All trials have 1,000 tokens.",
    ),
    "failures": (
        pictures.failures_picture,
        lambda r: replace(
            r, failures=[replace(r.failures[0], profile=place, count=2) for place in range(len(r.profiles))]
        ),
        "",
    ),
    "trend": (
        pictures.trend_picture,
        lambda r: replace(r, trend=[replace(t, points=changed(t.points, rate=0.5)) for t in r.trend]),
        "Every pass rate is 50.0 %.",
    ),
}


@pytest.mark.parametrize("kind", list(FLAT))
def test_what_does_not_vary_is_said_and_not_drawn(kind: str) -> None:
    draw, flatten, said = FLAT[kind]
    report = small()
    assert draw(report).svg, "the numbers of the example vary"
    assert draw(flatten(report)) == pictures.Picture(None, said)
    if said:
        assert f"{said}</p>" in render_html(flatten(report))
