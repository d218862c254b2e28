"""Charts of results: what `compare` says of the arms, drawn; each as an SVG of its own, and all on one page.

Rates, intervals, denominators and differences are those of `terminalbench.analytics`: over planned runs, paired by
instance, corrected for several comparisons. An arm that sees the hidden verdict is shown and never compared.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.analytics.compare import compare
from terminalbench.analytics.model import Comparison, Row
from terminalbench.analytics.settings import ComparisonSettings
from terminalbench.errors import UserError
from terminalbench.files import write_bytes
from terminalbench.json_files import read_json
from terminalbench.records.counts import Spend
from terminalbench.records.trial import Outcome, TaskRef
from terminalbench.records.values import copied
from terminalbench.report.charts import chart_css
from terminalbench.report.charts.bars import Bar, BarPart, RateRow, SpreadRow, rates, spread, stacked_bars
from terminalbench.report.charts.heatmap import HeatCell, HeatRow, heat_map
from terminalbench.report.charts.scatter import pareto
from terminalbench.report.charts.svg import esc
from terminalbench.report.pictures import COST_AXIS, HEAT_ROWS, forest_chart, front_points
from terminalbench.swebench_pro.convert import short_id
from terminalbench.swebench_pro.rows import BASELINE, ResultRow, RunVerdict
from terminalbench.text.numbers import plural, some, tokens

DATASET = "swebench-pro"
FOLDER = "charts"


@dataclass(frozen=True)
class Chart:
    """One chart: None where there is nothing to draw, and why."""

    name: str
    title: str
    svg: str | None
    note: str = ""


@dataclass(frozen=True)
class Charts:
    """All of them, and the comparison they show."""

    charts: tuple[Chart, ...]
    comparison: Comparison
    notes: tuple[str, ...] = ()


def analytics_row(row: ResultRow) -> Row:
    """A result as the statistics see it: a run whose patch was not tested has no verdict, one that gave up failed."""
    cost = row.spent_usd if row.spent_usd is not None or row.superseded else row.cost_usd
    used = row.spent_tokens if row.spent_tokens is not None or row.superseded else row.total_tokens
    not_run = row.standing is RunVerdict.NOT_RUN
    return copied(
        Row,
        row,
        task=TaskRef(row.instance_id, DATASET),
        profile=row.arm,
        outcome=_outcome(row),
        batch=row.batch or DATASET,
        reason=row.error,
        agent_sec=row.workflow_time_seconds,
        untested=row.standing is RunVerdict.PENDING,
        suspect=tuple(row.suspect),
        spent=Spend() if row.trial is None and not_run else Spend(cost, int(cost is None), used, int(used is None)),
    )


def _outcome(row: ResultRow) -> Outcome:
    if row.outcome in set(Outcome):
        return Outcome(row.outcome)
    standings = {
        RunVerdict.RESOLVED: Outcome.PASSED,
        RunVerdict.UNRESOLVED: Outcome.FAILED,
        RunVerdict.GAVE_UP: Outcome.FAILED,
        RunVerdict.ERROR: Outcome.ERRORED,
    }
    return standings.get(row.standing, Outcome.NOT_RUN)


def with_verdicts(rows: Sequence[ResultRow], file: Path | None) -> list[ResultRow]:
    """The rows with the verdicts of an evaluation in the place of their own; a run that it does not name keeps its own.

    A table by instance alone is of one arm: of several it would say the same of all.
    """
    if file is None:
        return list(rows)
    found = read_json(file)
    arms = {row.arm for row in rows}
    table = found.get("resolved", found) if isinstance(found, dict) else None
    if isinstance(table, dict) and table and all(isinstance(value, bool | None) for value in table.values()):
        if len(arms) > 1:
            raise UserError(
                "does not name arms, but the results have several", where=str(file), hint="give {arm: {id: bool}}"
            )
        table = dict.fromkeys(arms, table)
    if not isinstance(table, dict) or not all(isinstance(value, dict) for value in table.values()):
        raise UserError(
            "contains no verdicts", where=str(file), hint="use resolved.json of tbench swebench-pro evaluate"
        )
    if rows and not any(row.instance_id in table.get(row.arm, {}) for row in rows):
        where = f"{plural(len(rows), 'run')} of {some(sorted(arms))}"
        raise UserError(f"has no verdict on any of the results: {where}", where=str(file))
    return [_judged(row, table.get(row.arm, {})) for row in rows]


def _judged(row: ResultRow, verdicts: dict[str, Any]) -> ResultRow:
    if row.instance_id not in verdicts:
        return row
    said = verdicts[row.instance_id]
    resolved = said if isinstance(said, bool) else None
    outcome = Outcome.ERRORED if resolved is None else Outcome.PASSED if resolved else Outcome.FAILED
    return msgspec.structs.replace(row, resolved=resolved, outcome=outcome)


def make_charts(
    rows: Sequence[ResultRow], bad_lines: int = 0, link: Callable[[ResultRow], str | None] = lambda _row: None
) -> Charts:
    """Every chart of some results; `bad_lines` of them could not be read. `link` is the address of a run's page."""
    compared = [row for row in rows if not row.oracle]
    if not compared:
        raise UserError("there is nothing to draw", hint="no row belongs to an arm that can be compared")
    by_arm: dict[str, list[ResultRow]] = defaultdict(list)
    for row in compared:
        by_arm[row.arm].append(row)
    arms = list(by_arm)
    oracle = sorted({row.arm for row in rows if row.oracle})
    baseline = BASELINE if BASELINE in arms else arms[0]
    contrasts = tuple((arm, baseline) for arm in arms if arm != baseline)
    comparison = compare(
        [analytics_row(row) for row in compared], ComparisonSettings(baseline=baseline, contrasts=contrasts)
    )
    notes = [f"Not drawn, because it sees the hidden verdict: {', '.join(oracle)}."] if oracle else []
    notes += [f"{plural(bad_lines, 'line')} of the results could not be read."] if bad_lines else []
    pending = sum(row.standing is RunVerdict.PENDING for row in compared)
    notes += [f"{plural(pending, 'run')} left a patch that was not tested, and are not measured."] if pending else []
    charts = (
        _pass_rates(comparison),
        _cost(comparison),
        _tokens(by_arm),
        _times(by_arm),
        _heat(compared, arms, link),
        _effects(comparison),
    )
    return Charts(charts, comparison, (*notes, *comparison.warnings))


def _pass_rates(comparison: Comparison) -> Chart:
    rows = [
        RateRow(
            p.profile,
            p.rate,
            p.interval.low if p.interval else None,
            p.interval.high if p.interval else None,
            f"of {p.measured}/{p.planned}",
        )
        for p in comparison.profiles
    ]
    note = "Mean over the instances of measured runs, with its interval; measured of planned runs."
    return Chart("pass_rate", "Pass rate", rates(rows), note)


def _cost(comparison: Comparison) -> Chart:
    points = front_points(comparison.profiles)
    drawn = {point.label for point in points}
    unknown = [p.profile for p in comparison.profiles if p.profile not in drawn]
    note = f"Not drawn, because the cost or the rate is not fully known: {', '.join(unknown)}." if unknown else ""
    return Chart("cost_pass_rate", "Cost against pass rate", pareto(points, COST_AXIS) if points else None, note)


def _tokens(by_arm: Mapping[str, Sequence[ResultRow]]) -> Chart:
    bars, missing = [], []
    for arm, rows in by_arm.items():
        told = [row.per_step_tokens for row in rows if row.per_step_tokens]
        used: Counter[str] = Counter()
        for steps in told:
            used.update({step: many or 0 for step, many in steps.items()})
        if told:
            each = f"{tokens(used.total() / len(told))} a run, of {len(told)}/{len(rows)}"
            bars.append(Bar(arm, tuple(BarPart(step, many) for step, many in used.items()), each))
        missing += [arm] if any(None in steps.values() for steps in told) else []
    note = "Tokens of all attempts, including rejected ones."
    note += f" Partly unknown: {some(missing)}." if missing else ""
    drawn = stacked_bars(bars, "Tokens per step", "tokens") if bars else None
    return Chart("tokens_per_step", "Tokens per step", drawn, note)


def _times(by_arm: Mapping[str, Sequence[ResultRow]]) -> Chart:
    known = []
    for arm, rows in by_arm.items():
        ran = [row.wall_time_seconds for row in rows if row.standing is not RunVerdict.NOT_RUN]
        values = tuple(seconds for seconds in ran if seconds is not None)
        known += [SpreadRow(arm, values)] if values else []
    return Chart("wall_time", "Wall time of a run", spread(known, "Wall time", "seconds") if known else None)


def _heat(rows: Iterable[ResultRow], arms: Sequence[str], link: Callable[[ResultRow], str | None]) -> Chart:
    cells: dict[str, dict[str, list[Outcome]]] = defaultdict(lambda: defaultdict(list))
    first: dict[tuple[str, str], str] = {}
    for row in rows:
        cells[row.instance_id][row.arm].append(_outcome(row))
        address = link(row)
        if address is not None:
            first.setdefault((row.instance_id, row.arm), address)
    order = sorted(cells, key=lambda name: (-_resolved(cells[name]), name))
    shown = order if len(order) <= HEAT_ROWS else sorted(order, key=lambda name: -_differs(cells[name]))[:HEAT_ROWS]
    made = [
        HeatRow(
            short_id(name), tuple(HeatCell(tuple(cells[name].get(arm, ())), first.get((name, arm))) for arm in arms)
        )
        for name in shown
    ]
    note = f"The {HEAT_ROWS} instances on which arms differ most, of {len(order):,}." if len(shown) < len(order) else ""
    return Chart(
        "outcomes", "Outcome of each instance", heat_map(arms, made, "Instances by arm") if made else None, note
    )


def _resolved(arms: dict[str, list[Outcome]]) -> int:
    return sum(outcomes.count(Outcome.PASSED) for outcomes in arms.values())


def _differs(arms: dict[str, list[Outcome]]) -> bool:
    return len({Outcome.PASSED in outcomes for outcomes in arms.values()}) > 1


def _effects(comparison: Comparison) -> Chart:
    if not comparison.contrasts:
        return Chart("paired_effects", "Paired effects", None, "There is only one arm, so there is nothing to compare.")
    drawn = forest_chart(comparison)
    said = [f"{contrast.sentence}." for contrast in comparison.contrasts]
    if all(contrast.estimate.difference is None for contrast in comparison.contrasts):
        said = ["No two arms were measured on the same instance.", *said]
    elif drawn is None:
        said = ["No two arms differ.", *said]
    return Chart("paired_effects", "Paired effects", drawn, " ".join(said))


def write(charts: Charts, folder: Path, source: str) -> Path:
    """Write every chart as `<name>.svg` and all of them as index.html; the page."""
    css = chart_css()
    for chart in charts.charts:
        path = folder / f"{chart.name}.svg"
        if chart.svg is None:
            path.unlink(missing_ok=True)
            continue
        alone = chart.svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
        head = alone.index(">") + 1
        write_bytes(path, f"{alone[:head]}<style>{css}</style>{alone[head:]}\n".encode(errors="replace"))
    page = folder / "index.html"
    write_bytes(page, _page(charts, source, css).encode(errors="replace"))
    return page


def _page(charts: Charts, source: str, css: str) -> str:
    figures = "".join(
        f'<figure id="{chart.name}"><h2>{esc(chart.title)}</h2><div class="scroll" tabindex="0" role="region" '
        f'aria-label="{esc(chart.title)}">{chart.svg or "<p>Nothing to draw.</p>"}</div>'
        f"<figcaption>{esc(chart.note)}</figcaption></figure>"
        for chart in charts.charts
    )
    notes = "".join(f"<li>{esc(note)}</li>" for note in charts.notes)
    style = (
        "body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:1.5rem auto;padding:0 1rem;"
        "background:var(--paper);color:var(--ink);overflow-wrap:anywhere}"
        "figure{margin:0 0 2rem}figcaption{max-width:46rem}.scroll{overflow-x:auto}"
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>SWE-Bench Pro</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><style>{style}{css}</style></head><body>'
        f"<h1>SWE-Bench Pro</h1><p>{esc(source)}</p><ul>{notes}</ul>{figures}</body></html>\n"
    )
