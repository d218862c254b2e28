"""Charts: numbers in, one inline SVG string out. Pure, self-contained, readable without colour and by a screen reader.

Colours are the CSS variables of `charts.css` beside this file; a page that shows charts includes that text once.
"""

from importlib.resources import files

from terminalbench.report.charts.bars import Bar, Part, bars, stacked_bars
from terminalbench.report.charts.forest import ForestRow, forest
from terminalbench.report.charts.heatmap import HeatCell, HeatRow, heat_map
from terminalbench.report.charts.scatter import Dot, FrontPoint, pareto, scatter
from terminalbench.report.charts.trend import TrendPoint, TrendSeries, trend

__all__ = [
    "Bar",
    "Dot",
    "ForestRow",
    "FrontPoint",
    "HeatCell",
    "HeatRow",
    "Part",
    "TrendPoint",
    "TrendSeries",
    "bars",
    "chart_css",
    "forest",
    "heat_map",
    "pareto",
    "scatter",
    "stacked_bars",
    "trend",
]


def chart_css() -> str:
    """The style every chart needs: colours for light and dark, strokes, letters."""
    return files(__name__).joinpath("charts.css").read_text(encoding="utf-8")
