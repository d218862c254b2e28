"""The morning report as one HTML file: the same as its Markdown, with charts. Pure."""

from collections.abc import Callable
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from terminalbench.index.totals import wilson
from terminalbench.overnight.morning import href, labelled, sections
from terminalbench.overnight.night import NightEventKind, Role
from terminalbench.overnight.summary_model import NightSummary
from terminalbench.text.numbers import moment

if TYPE_CHECKING:
    import jinja2


def render_html(summary: NightSummary) -> str:
    """The report as one page, with charts; no script, no network, what agents wrote is text."""
    from markupsafe import Markup

    from terminalbench.report.charts import chart_css
    from terminalbench.report.documents import template_text

    charts = {
        "Pass rate by iteration": trend_chart(summary),
        "Workers, incidents, and what the trials that had ended cost by then": timeline_chart(
            summary, lambda batch: href(f"batches/{batch}")
        ),
    }
    return _environment().get_template("night.html").render(
        night=summary,
        css=Markup(template_text("report.css")),  # noqa: S704  our own file
        chart_css=Markup(chart_css()),  # noqa: S704  our own file
        charts={said: Markup(one) for said, one in charts.items() if one},  # noqa: S704  charts escape texts: charts/svg.py
        answer=labelled(summary.headlines),
        sections=sections(summary),
    )  # fmt: skip


def trend_chart(summary: NightSummary) -> str | None:
    """The pass rate from iteration to iteration with Wilson's interval, a line a profile; None if all are the same."""
    from terminalbench.report.charts.scatter import TrendPoint, TrendSeries, trend
    from terminalbench.report.charts.svg import varies

    lines = [line for line in summary.iterations if line.profiles]
    if not varies(one.pass_rate for line in lines for one in line.profiles):
        return None
    series = [
        TrendSeries(
            model.profile,
            tuple(
                TrendPoint(place, one.pass_rate, *_ends(one.pass_rate, one.measured))
                for place, line in enumerate(lines)
                for one in line.profiles
                if one.profile == model.profile
            ),
        )
        for model in summary.models
    ]
    return trend([str(line.number) for line in lines], series, "iteration")


def timeline_chart(summary: NightSummary, href_of: Callable[[str], str]) -> str | None:
    """The workers, the incidents and the spend of a night; None where no work took any time. Bars lead to batches."""
    from terminalbench.report.charts.timeline import SpentBy, TimelineBar, TimelineMark, timeline

    if summary.timeline is None:
        return None
    batches = {line.number: line.batch for line in summary.iterations if line.batch is not None}
    bars = [
        TimelineBar(
            one.worker,
            _seconds(one.started_at),
            _seconds(one.ended_at) if one.ended_at is not None else None,
            str(one.iteration) if one.role is Role.ITERATION else f"{one.role} {one.iteration}",
            f"worker {one.worker}, {one.role} {one.iteration}, from {moment(one.started_at)}"
            + (f" to {moment(one.ended_at)}" if one.ended_at is not None else ", still at it")
            + (", lost" if one.lost else ""),
            one.lost,
            href_of(batches[one.iteration]) if one.role is Role.ITERATION and one.iteration in batches else None,
        )
        for one in summary.timeline.workers
    ]
    marks = [
        TimelineMark(_seconds(one.time), f"{moment(one.time)}: {one.said}", one.kind is not NightEventKind.RESUMED)
        for one in summary.incidents
    ]
    return timeline(bars, marks, [SpentBy(_seconds(one.time), one.cost_usd) for one in summary.timeline.spend])


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def _ends(rate: float | None, measured: int) -> tuple[float, float] | tuple[None, None]:
    return (None, None) if rate is None or not measured else wilson(rate, measured)


@cache
def _environment() -> "jinja2.Environment":
    import jinja2

    from terminalbench.report.documents import templates
    from terminalbench.text.foreign import visible

    made = templates(
        jinja2.FunctionLoader(
            lambda name: files("terminalbench.overnight").joinpath("templates", name).read_text("utf-8")
        ),
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    made.filters["moment"] = moment
    return made
