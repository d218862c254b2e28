"""The charts of a report and of the dashboard's batches, from their numbers. Says what it leaves out."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from terminalbench.analytics.model import Comparison, Interval, ProfileSummary
from terminalbench.report.charts.bars import Bar, BarPart, bars, stacked_bars
from terminalbench.report.charts.forest import ForestRow, forest
from terminalbench.report.charts.heatmap import HeatCell, HeatRow, heat_map
from terminalbench.report.charts.scatter import Dot, FrontPoint, binned, pareto, scatter
from terminalbench.report.charts.svg import SERIES, varies
from terminalbench.report.charts.trend import TrendPoint, TrendSeries, trend
from terminalbench.report.model import Report, TaskLine
from terminalbench.text.numbers import dollars, percent, plural, tokens

HEAT_ROWS = 60
"""Tasks of a matrix that stand open; of more, those on which the profiles differ most."""
HEAT_FOLDED = 140
"""Tasks that can be unfolded below them."""
DOTS = 300
CLASSES = 12
COST_AXIS = "mean cost of a trial, US$"


@dataclass(frozen=True)
class Picture:
    """A chart as SVG, or None where there is nothing to draw; `note` is what one must know to read it."""

    svg: str | None
    note: str = ""


def heat_picture(report: Report) -> Picture:
    """Tasks by profile. Of very many tasks, those on which the profiles differ most."""
    shown = _by_spread(report)
    note = ""
    if len(shown) > HEAT_ROWS:
        note = f"The {HEAT_ROWS} tasks on which the profiles differ most."
    return Picture(_heat(report, shown[:HEAT_ROWS]), note)


def folded_heat_picture(report: Report) -> Picture:
    """The tasks for which the matrix has no room."""
    rest = _by_spread(report)[HEAT_ROWS:]
    left = len(rest) - HEAT_FOLDED
    note = f"{left:,} more are in the list of trials." if left > 0 else ""
    return Picture(_heat(report, rest[:HEAT_FOLDED]), note)


def _by_spread(report: Report) -> list[tuple[int, TaskLine]]:
    """The tasks in the order of the report; where they are very many, those that tell most first."""
    found = list(enumerate(report.tasks))
    return sorted(found, key=lambda item: (-_spread(item[1]), item[0])) if len(found) > HEAT_ROWS else found


def _heat(report: Report, shown: list[tuple[int, TaskLine]]) -> str | None:
    rows = [
        HeatRow(
            task.label,
            tuple(
                HeatCell(tuple(ref.outcome for ref in cell), f"#t{index}p{profile}" if cell else None)
                for profile, cell in enumerate(task.cells)
            ),
        )
        for index, task in shown
    ]
    return heat_map(report.profile_names(), rows) if rows else None


def _spread(task: TaskLine) -> float:
    rates = [rate for cell in task.cells if (rate := HeatCell(tuple(r.outcome for r in cell)).rate) is not None]
    return max(rates) - min(rates) if rates else -1.0


def forest_picture(report: Report) -> Picture:
    """The contrasts. Shares are drawn in points; other metrics as they come."""
    if not report.contrasts:
        return Picture(None, "There is only one profile, so there is nothing to compare.")
    if all(contrast.estimate.difference is None for contrast in report.contrasts):
        return Picture(None, "No two profiles were measured on the same task.")
    drawn = forest_chart(report.comparison, "#k")
    return Picture(drawn, "" if drawn else "No two profiles differ.")


def _ends(interval: Interval | None) -> tuple[float, float] | tuple[None, None]:
    return (interval.low, interval.high) if interval else (None, None)


def forest_chart(comparison: Comparison, anchor: str | None = None) -> str | None:
    """The differences with their intervals, None without any; with `anchor` each leads to its place in the page."""
    rows = []
    for index, contrast in enumerate(comparison.contrasts):
        estimate = contrast.estimate
        href = f"{anchor}{index}" if anchor else None
        names = f"{contrast.new} vs {contrast.old}"
        rows.append(ForestRow(names, contrast.verdict, estimate.difference, *_ends(estimate.interval), href))
    if not varies((end for row in rows for end in (row.value, row.low, row.high)), 0.0):
        return None
    margins = {contrast.margin for contrast in comparison.contrasts}
    margin = margins.pop() if len(margins) == 1 else None
    return forest(rows, comparison.metric, margin, "Differences between profiles")


def pareto_picture(report: Report) -> Picture:
    """Pass rate against cost; profiles whose cost is unknown are named instead of drawn."""
    summaries = [line.summary for line in report.profiles]
    points = front_points(summaries, "#p")
    drawn = {point.label for point in points}
    unknown = [summary.profile for summary in summaries if summary.profile not in drawn]
    notes = [f"Not drawn, because no model is called or the cost or the rate is not fully known: {', '.join(unknown)}."]
    notes = notes if unknown else []
    chart = front_chart(points)
    if chart is None and len(points) > 1:
        notes.append(f"A trial costs {dollars(points[0].cost)} with every profile.")
    elif chart is not None and any(summary.rate != summary.rate_all for summary in summaries):
        notes.append('"Best for its cost" counts all planned trials, so trials left out of the rate do not help.')
    return Picture(chart, " ".join(notes))


def front_chart(points: Sequence[FrontPoint]) -> str | None:
    """The picture of pass rate and cost; None where no two costs differ as they are written."""
    return pareto(points, COST_AXIS) if len({dollars(point.cost) for point in points}) > 1 else None


def front_points(profiles: Sequence[ProfileSummary], anchor: str | None = None) -> list[FrontPoint]:
    """Pass rate against the mean cost of a planned trial, of the profiles whose cost and rate are known."""
    return [
        FrontPoint(
            p.profile,
            p.cost_usd / p.planned,
            p.rate,
            *_ends(p.interval),
            p.on_pareto_front,
            f"{anchor}{index}" if anchor else None,
        )
        for index, p in enumerate(profiles)
        if p.rate is not None and p.cost_usd is not None and not p.cost_unknown_trials and p.planned and not p.no_model
    ]


def tools_picture(report: Report) -> Picture:
    """Return what kinds of tools each profile used."""
    if not report.tools:
        return Picture(None)
    totals: dict[str, int] = defaultdict(int)
    for use in report.tools:
        for kind, count in use.calls.items():
            totals[kind] += count
    kinds = sorted(totals, key=lambda kind: -totals[kind])
    own, rest = (kinds, []) if len(kinds) <= SERIES else (kinds[: SERIES - 1], kinds[SERIES - 1 :])
    rows = []
    for use in report.tools:
        parts = [BarPart(kind, use.calls.get(kind, 0)) for kind in own]
        if rest:
            parts.append(BarPart("other", sum(use.calls.get(kind, 0) for kind in rest)))
        calls = sum(use.calls.values())
        mean = calls / use.trials
        note = f"{plural(calls, 'call')}, {mean:.1f} a trial"
        rows.append(Bar(report.profiles[use.profile].summary.profile, tuple(parts), note))
    if not varies(use.calls.get(kind, 0) / use.trials for use in report.tools for kind in kinds):
        each = report.tools[0].calls.get(kinds[0], 0) / report.tools[0].trials if kinds else 0
        return Picture(None, f"{each:.1f} calls a trial of {', '.join(kinds)}." if kinds else "")
    note = f"Other: {', '.join(rest[:12])}{' and more' if len(rest) > 12 else ''}." if rest else ""
    return Picture(stacked_bars(rows, "Tool calls by kind", "calls"), note)


def effort_picture(report: Report) -> Picture:
    """Tokens against backtracks, a dot a trial; of very many, neighbours are drawn as one."""
    if not report.efforts:
        return Picture(None)
    names = report.profile_names()
    dots = [
        Dot(
            effort.trial.profile,
            float(effort.tokens),
            float(effort.backtracks),
            text=f"{report.tasks[effort.trial.task].label}, {names[effort.trial.profile]}: "
            f"{tokens(effort.tokens)} tokens, {plural(effort.backtracks, 'backtrack')}",
            href=f"#{effort.trial.anchor}",
        )
        for effort in report.efforts
    ]
    if not varies(dot.y for dot in dots):
        return Picture(None, f"All trials have {plural(report.efforts[0].backtracks, 'backtrack')}.")
    if not varies(dot.x for dot in dots):
        return Picture(None, f"All trials have {tokens(report.efforts[0].tokens)} tokens.")
    drawn = binned(dots, DOTS)
    note = f"{plural(len(dots), 'trial')}; neighbours are drawn as one dot." if len(drawn) < len(dots) else ""
    return Picture(scatter(names, drawn, "tokens", "backtracks", "Tokens against backtracks"), note)


def failures_picture(report: Report) -> Picture:
    """Failure classes by profile."""
    if not report.failures:
        return Picture(None)
    names = report.profile_names()
    classes: dict[str, dict[int, int]] = defaultdict(dict)
    for group in report.failures:
        classes[group.what][group.profile] = group.count
    order = sorted(classes, key=lambda what: (-sum(classes[what].values()), what))
    rows = [
        Bar(what, tuple(BarPart(name, classes[what].get(index, 0)) for index, name in enumerate(names)))
        for what in order[:CLASSES]
    ]
    if not varies(part.value for row in rows for part in row.parts):
        return Picture(None)
    note = f"{len(order) - CLASSES} rarer classes are only in the table." if len(order) > CLASSES else ""
    return Picture(bars(rows, names, "Failure classes", "number of trials"), note)


def trend_picture(report: Report) -> Picture:
    """Pass rates over the batches."""
    if not report.trend:
        return Picture(None)
    names = list(dict.fromkeys(point.profile for line in report.trend for point in line.points))
    series = [
        TrendSeries(
            name,
            tuple(
                TrendPoint(index, point.rate, *_ends(point.interval))
                for index, line in enumerate(report.trend)
                for point in line.points
                if point.profile == name
            ),
        )
        for name in names
    ]
    rates = [point.rate for one in series for point in one.points if point.rate is not None]
    if not varies(rates):
        return Picture(None, f"Every pass rate is {percent(rates[0])}." if rates else "")
    slugs = {line.batch.rpartition("/")[0] for line in report.trend}
    labels = [line.batch if len(slugs) > 1 else line.batch.rpartition("/")[2] for line in report.trend]
    return Picture(trend(labels, series))
