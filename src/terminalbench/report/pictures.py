"""The charts of a report and of the dashboard's batches, from their numbers; and as files, to be pasted into a paper.

A file has its style inside, on white, and no variables of CSS, which most programs but browsers do not know: SVG, and
PNG where a program for it is installed.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from terminalbench.analytics.model import Comparison, Interval, ProfileSummary
from terminalbench.errors import UserError
from terminalbench.files import write_text
from terminalbench.report.charts import chart_css
from terminalbench.report.charts.bars import Bar, BarPart, ForestRow, bars, forest, stacked_bars
from terminalbench.report.charts.heatmap import HeatCell, HeatRow, heat_map
from terminalbench.report.charts.scatter import Dot, FrontPoint, TrendPoint, TrendSeries, binned, pareto, scatter, trend
from terminalbench.report.charts.svg import SERIES, varies
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


def _by_spread(report: Report) -> Sequence[TaskLine]:
    """The tasks in the order of the report; where they are very many, those that tell most first."""
    return report.tasks if len(report.tasks) <= HEAT_ROWS else sorted(report.tasks, key=lambda task: -_spread(task))


def _heat(report: Report, shown: Sequence[TaskLine]) -> str | None:
    rows = [HeatRow(task.label, _heat_cells(task)) for task in shown]
    return heat_map(report.profile_names(), rows) if rows else None


def _heat_cells(task: TaskLine) -> tuple[HeatCell, ...]:
    return tuple(
        HeatCell(tuple(ref.cell.outcome for ref in cell), f"#{cell[0].anchor}" if cell else None) for cell in task.cells
    )


def _spread(task: TaskLine) -> float:
    rates = [cell.rate for cell in _heat_cells(task) if cell.rate is not None]
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
        rows.append(Bar(use.profile, tuple(parts), note))
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
            effort.trial.at[1],
            float(effort.tokens),
            float(effort.backtracks),
            text=f"{effort.trial.task}, {effort.trial.cell.profile}: "
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
    classes: dict[str, dict[str, int]] = defaultdict(dict)
    for group in report.failures:
        classes[group.what][group.profile] = group.count
    order = sorted(classes, key=lambda what: (-sum(classes[what].values()), what))
    rows = [Bar(what, tuple(BarPart(name, classes[what].get(name, 0)) for name in names)) for what in order[:CLASSES]]
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


PICTURES = {
    "heat": heat_picture,
    "folded": folded_heat_picture,
    "forest": forest_picture,
    "pareto": pareto_picture,
    "tools": tools_picture,
    "effort": effort_picture,
    "failures": failures_picture,
    "trend": trend_picture,
}

FOLDER = "pictures"
SCALE = 2
"""A PNG has so many dots for each of the page's."""
_LIMIT_SEC = 120
_RULE = re.compile(r"(?P<where>\.chart[^{}]*)\{(?P<what>[^{}]*)\}")
_VALUE = re.compile(r"--([\w-]+):\s*([^;{}]+);")
_OPENING = re.compile(
    r'^<svg class="[^"]*"(?P<role>.*?) viewBox="0 0 (?P<width>[\d.]+) (?P<height>[\d.]+)" width="(?P<size>[\d.]+)">'
)


def write_pictures(report: Report, folder: Path) -> list[Path]:
    """Write every chart of a report that shows something into a folder; the files. Charts of earlier ones go.

    Raises UserError where a program for PNG is installed and fails.
    """
    for name in PICTURES:
        for ending in (".svg", ".png"):
            (folder / f"{name}{ending}").unlink(missing_ok=True)
    drawn = {name: picture.svg for name, make in PICTURES.items() if (picture := make(report)).svg}
    found = []
    for name, svg in drawn.items():
        file = folder / f"{name}.svg"
        write_text(file, standalone(svg or ""))
        found.append(file)
        if (painted := _painted(file)) is not None:
            found.append(painted)
    return found


def standalone(svg: str) -> str:
    """A chart as a file of its own: style, size and paper inside, and no links, which would lead nowhere."""
    head = _OPENING.match(svg)
    if head is None:
        raise ValueError("not a chart of this package")
    width, height, size = (float(head[name]) for name in ("width", "height", "size"))
    place = f'viewBox="0 0 {head["width"]} {head["height"]}" width="{size:g}" height="{size * height / width:.0f}"'
    body = re.sub(r'<a href="[^"]*">', "<g>", svg[head.end() :]).replace("</a>", "</g>")
    start = f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" role="img" {place}>'
    paper = f'<rect width="{head["width"]}" height="{head["height"]}" fill="#fff"/>'
    return f"{start}<style>{_style()}</style>{paper}{body}\n"


def _style() -> str:
    """The rules of charts in the colours of print, each with its values in place."""
    css = re.sub(r"/\*.*?\*/", "", chart_css(), flags=re.DOTALL)
    values = dict(_VALUE.findall(css[css.index("@media print") :]))
    values |= {name: value for name, value in _VALUE.findall(css) if name not in values}
    rules = []
    for rule in _RULE.finditer(css):
        where, what = rule["where"].strip(), rule["what"].strip()
        if "--c:" in what or ":hover" in where:
            continue
        series = range(SERIES) if "var(--c)" in what else (None,)
        for one in series:
            kind = where if one is None else where.replace(".chart .", f".chart .s{one}.")
            own = what if one is None else what.replace("var(--c)", values[f"s{one}"])
            rules.append(f"{kind}{{{_resolved(own, values)}}}")
    return "".join(rules)


def _resolved(text: str, values: dict[str, str]) -> str:
    while "var(--" in text:
        text = re.sub(r"var\(--([\w-]+)\)", lambda found: values[found[1]], text)
    return text


type _Painter = Callable[[str, Path, Path, tuple[int, int]], Sequence[str]]


def _chromium(program: str, file: Path, target: Path, size: tuple[int, int]) -> Sequence[str]:
    own = ("--no-sandbox",) if hasattr(os, "geteuid") and os.geteuid() == 0 else ()
    shot = (f"--screenshot={target}", f"--window-size={size[0]},{size[1]}", f"--force-device-scale-factor={SCALE}")
    return (program, "--headless", "--disable-gpu", "--hide-scrollbars", *own, *shot, file.resolve().as_uri())


PAINTERS: dict[str, _Painter] = {
    "rsvg-convert": lambda program, file, target, _: (
        program, "--zoom", str(SCALE), "--output", str(target), str(file),
    ),
    "inkscape": lambda program, file, target, _: (
        program, f"--export-filename={target}", f"--export-dpi={96 * SCALE}", str(file),
    ),
    "chromium": _chromium,
    "google-chrome": _chromium,
}  # fmt: skip
"""Programs that make a PNG of an SVG; the first that is installed does."""


def painter() -> str | None:
    """The program that makes PNGs here; None where there is none."""
    return next((name for name in PAINTERS if shutil.which(name)), None)


def _painted(file: Path) -> Path | None:
    """A file as PNG beside it; None where no program makes one."""
    name = painter()
    if name is None:
        return None
    target = file.with_suffix(".png").resolve()
    size = re.search(r' width="([\d.]+)" height="(\d+)"', file.read_text(encoding="utf-8"))
    window = (round(float(size[1])), int(size[2])) if size is not None else (800, 600)
    failure = _run(PAINTERS[name](shutil.which(name) or name, file, target, window))
    if failure is not None or not target.is_file():
        raise UserError(f"{name} could not make a PNG: {failure or 'it wrote none'}", where=str(file), hint=_HINT)
    return target


def _run(command: Sequence[str]) -> str | None:
    """Run a program, and end all that it has started; what went wrong, if anything did.

    Its home is a folder that goes: a browser writes settings and caches.
    """
    pipe, none = subprocess.PIPE, subprocess.DEVNULL
    with tempfile.TemporaryDirectory(prefix="tbench-", ignore_cleanup_errors=True) as home:
        env = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")} | {"HOME": home}
        try:
            process = subprocess.Popen(command, stdin=none, stdout=none, stderr=pipe, env=env, start_new_session=True)
        except OSError as error:
            return str(error)
        return _ended(process)


def _ended(process: subprocess.Popen[bytes]) -> str | None:
    try:
        said = process.communicate(timeout=_LIMIT_SEC)[1].decode(errors="replace").strip().splitlines()[-1:]
    except subprocess.TimeoutExpired:
        return f"it did not end in {_LIMIT_SEC} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return None if process.returncode == 0 else f"exit code {process.returncode}{': ' + said[0] if said else ''}"


_HINT = "the SVG files are there; any drawing program opens them"
