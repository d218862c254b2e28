"""Charts of a comparison, from the pure charts of the report."""

from typing import TYPE_CHECKING

from terminalbench.report.charts import ForestRow, FrontPoint, forest, pareto

if TYPE_CHECKING:
    from terminalbench.analytics.model import Comparison, Interval

_POINTS = 100.0


def forest_chart(comparison: "Comparison") -> str | None:
    """The differences with their intervals, in points; None without any."""
    rows = []
    for contrast in comparison.contrasts:
        found = contrast.estimate
        value = None if found.difference is None else _POINTS * found.difference
        ends = (*_ends(found.interval, _POINTS), *_ends(found.suite_interval, _POINTS))
        rows.append(ForestRow(f"{contrast.new} vs {contrast.old}", contrast.verdict, value, *ends))
    if not any(row.value is not None for row in rows):
        return None
    margins = {contrast.margin for contrast in comparison.contrasts}
    margin = margins.pop() if len(margins) == 1 else None
    return forest(rows, "pt", margin * _POINTS if margin else None, "Differences between profiles")


def pareto_chart(comparison: "Comparison") -> str | None:
    """Pass rate against the mean cost of a planned trial; profiles whose cost is not fully known are not in it."""
    points = [
        FrontPoint(p.profile, p.cost_usd / p.planned, p.rate, *_ends(p.interval, 1.0), p.on_pareto_front)
        for p in comparison.profiles
        if p.rate is not None and p.cost_usd is not None and not p.cost_unknown_trials and p.planned
    ]
    return pareto(points, "mean cost of a planned trial, US$") if len(points) > 1 else None


def _ends(interval: "Interval | None", scale: float) -> tuple[float | None, float | None]:
    return (interval.low * scale, interval.high * scale) if interval is not None else (None, None)
