"""One batch: how it stands, profile by profile and task by task, what was planned, and what departed from it."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from terminalbench.dashboard.findings import Failures, batch_failures, classify_missing
from terminalbench.dashboard.frame import Ask, Crumb, Page, Table
from terminalbench.dashboard.links import compare_path, experiment_path
from terminalbench.dashboard.live import ShownState
from terminalbench.dashboard.pages.trials import trial_table
from terminalbench.dashboard.pages.verdicts import Said, batch_verdict, contrast_table
from terminalbench.dashboard.running import outcome_bars, place, running_cells, waits
from terminalbench.dashboard.site import Site
from terminalbench.experiments.plan import Plan, ProfileRecord
from terminalbench.experiments.profiles import differences, value_text
from terminalbench.index.pages import BatchSummary, Window
from terminalbench.index.queries import BatchView, CellState, TrialRow
from terminalbench.index.totals import not_measured, profile_totals
from terminalbench.index.trial_pages import TrialFilter, find_trials
from terminalbench.records import Outcome, TaskRef
from terminalbench.report.pictures import forest_chart, front_chart, front_points

TASKS_PER_PAGE = 60
REASONS = 40
EXAMPLE_STEPS = 6
SHOWS = ("all", "differ", "unmeasured")
_CELL_COLUMNS = {
    "dataset": "task.dataset", "task": "task.id", "family": "task.family", "profile": "profile", "attempt": "attempt",
    "outcome": "outcome", "reason": "reason", "trial": "row.key", "cost_usd": "row.usage.cost_usd",
}  # fmt: skip
_PROFILE_COLUMNS = (
    "profile", "planned", "passed", "failed", "not_measured", "coverage", "pass_rate", "pass_rate_of_planned",
    "cost_usd", "cost_unknown_trials", "tokens", "tokens_unknown_trials", "cost_per_pass_usd", "mean_wall_sec",
    "superseded_trials", "simulated",
)  # fmt: skip


@dataclass(frozen=True)
class MatrixCell:
    """One profile at one task: its attempts, in order."""

    attempts: Sequence[CellState]
    passed: int
    measured: int

    @property
    def rate(self) -> float | None:
        """Of the measured attempts."""
        return self.passed / self.measured if self.measured else None


@dataclass(frozen=True)
class MatrixRow:
    """One task under every profile. `pair` are two trials worth seeing side by side, if there are any."""

    task: TaskRef
    cells: dict[str, MatrixCell]
    differs: bool
    unmeasured: bool
    pair: tuple[TrialRow, TrialRow] | None


def batch_page(site: Site, ask: Ask) -> Page:
    """The page of a batch."""
    summary = site.summary(ask.batch)
    view = site.view(summary)
    live = site.live_state(summary.batch)
    values: dict[str, Any] = {
        "batch": summary,
        "live": live,
        "left_sec": live.left_sec if live is not None else None,
        "window": Window(1, TASKS_PER_PAGE),
        "plan": None,
    }

    def trials() -> Table:
        return trial_table(find_trials(site.index, TrialFilter(batch=summary.batch), Window(size=None)).items)

    tables = {"trials": trials}
    if view is not None:
        values |= _planned(site, ask, summary, view)
        values |= _running(view, live, values)
        tables |= {
            "profiles": lambda: _profile_table(view),
            "cells": lambda: _cell_table(view),
            "contrasts": lambda: contrast_table(values["said"]),
            "failures": lambda: _failure_table(values["failures"]),
        }
    return Page(
        title=f"{summary.slug} {summary.number}" if summary.batch != "." else "Harbor jobs",
        template="batch.html",
        values=values,
        crumbs=(Crumb(summary.slug, experiment_path(summary.slug)),) if summary.batch != "." else (),
        tables=tables,
        document=lambda: _document(view, values),
        feed=summary.batch,
    )


def _running(view: BatchView, live: ShownState | None, shown: dict[str, Any]) -> dict[str, Any]:
    """What runs now, by cell; of a live batch, what has not had its turn is told once and is no reason."""
    running = running_cells(view.cells, live.running if live is not None else ())
    found = {"running": running, "place": place, "bars": outcome_bars(shown["profiles"], view.cells, running)}
    if live is None:
        return found
    stopped = [cell for cell in view.cells if place(cell) not in running and not waits(cell)]
    return found | {"reasons": not_measured(stopped)[:REASONS]}


def _planned(site: Site, ask: Ask, summary: BatchSummary, view: BatchView) -> dict[str, Any]:
    said = batch_verdict(site, summary, view, wait=ask.static or ask.data)
    failures = batch_failures(site, summary, view)
    if not said.waiting and classify_missing(site, summary, failures, now=ask.static):
        failures = batch_failures(site, summary, view)
    rows: list[MatrixRow] = site.kept(("matrix", summary.batch, summary.version), lambda: matrix(view))
    show = ask.text("show") if ask.text("show") in SHOWS else "all"
    text = ask.text("task").lower()
    wanted = [row for row in rows if _fits(row, show, text)]
    window = Window(ask.number("page"), len(wanted) or 1 if ask.static else TASKS_PER_PAGE)
    return {
        "plan": view.plan,
        "said": said,
        "failures": failures,
        "charts": [chart for chart in _charts(site, summary, said) if chart],
        "summaries": {p.profile: p for p in said.comparison.profiles} if said.comparison else {},
        "contrast_target": lambda c: compare_path((summary.batch, c.new), (summary.batch, c.old)),
        "profiles": site.kept(("profiles", summary.batch, summary.version), lambda: profile_totals(view)),
        "reasons": site.kept(("reasons", summary.batch, summary.version), lambda: not_measured(view.cells)[:REASONS]),
        "rows": wanted[window.offset : window.offset + window.limit],
        "matching": len(wanted),
        "tasks": len(rows),
        "datasets": len({row.task.dataset for row in rows}),
        "window": window,
        "show": show,
        "text": text,
        "changes": profile_changes(view.plan),
        "superseded": len(view.superseded),
        "has_toml": site.batch(summary.batch).experiment_toml.is_file(),
        "provenance": msgspec.to_builtins(view.plan.provenance),
        "settings": {name: value for name, value in asdict(view.plan.settings).items() if value not in (None, [])},
    }


def _charts(site: Site, summary: BatchSummary, said: Said) -> list[str | None]:
    comparison = said.comparison
    if comparison is None:
        return []

    def draw() -> list[str | None]:
        return [forest_chart(comparison), front_chart(front_points(comparison.profiles))]

    return site.kept(("charts", summary.batch, summary.version), draw)


def _fits(row: MatrixRow, show: str, text: str) -> bool:
    if text and text not in f"{row.task.dataset}/{row.task.id}".lower():
        return False
    return show == "all" or (row.differs if show == "differ" else row.unmeasured)


@dataclass(frozen=True)
class Change:
    """One aspect in which a profile differs from the baseline: both values, and a diff of the lines of a `long` one."""

    aspect: str
    old: str
    new: str
    lines: list[str]

    @property
    def long(self) -> bool:
        """Whether a table has no room for it."""
        return "\n" in self.old + self.new or len(self.old) + len(self.new) > 160


def profile_changes(plan: Plan) -> list[tuple[str, list[Change]]]:
    """What makes each profile another treatment than the baseline."""
    baseline = next((p for p in plan.profiles if p.key == plan.baseline), None)
    if baseline is None:
        return []
    return [(p.key, changes(baseline, p)) for p in plan.profiles if p.key != baseline.key]


def changes(old: ProfileRecord, new: ProfileRecord) -> list[Change]:
    """What differs between two profiles, ready to be shown."""
    found = differences(old.content, new.content)
    return [Change(d.aspect, value_text(d.old), value_text(d.new), d.lines()) for d in found]


def _profile_table(view: BatchView) -> Table:
    rows = [
        (
            p.profile, p.planned, p.passed, p.failed, p.planned - p.measured,
            p.measured / p.planned if p.planned else None,
            p.rate, p.rate_all, p.cost_usd, p.cost_unknown, p.tokens, p.tokens_unknown, p.cost_per_pass,
            p.mean_wall_sec, p.superseded, p.simulated,
        )
        for p in profile_totals(view)
    ]  # fmt: skip
    return Table(_PROFILE_COLUMNS, rows)


def _cell_table(view: BatchView) -> Table:
    return Table.of(view.cells, _CELL_COLUMNS)


def _failure_table(failures: Failures) -> Table:
    rows = [
        (group.what, profile, count, group.trials[0].reason)
        for group in failures.classes
        for profile, count in Counter(group.profiles).most_common()
    ]
    return Table(("failure_class", "profile", "trials", "example_reason"), rows)


def _document(view: BatchView | None, shown: dict[str, Any]) -> dict[str, Any]:
    found = {name: shown[name] for name in ("batch", "live", "left_sec")}
    if view is None:
        return found
    cells, failures = _cell_table(view), shown["failures"]
    return {
        **found,
        "plan": view.plan,
        "profiles": shown["profiles"],
        "cells": [dict(zip(cells.columns, row, strict=True)) for row in cells.rows],
        "comparison": shown["said"].comparison,
        "problem": shown["said"].problem,
        "failures": {"failed": failures.failed, "classified": failures.classified, "classes": _classes(failures)},
        "not_measured": shown["reasons"],
        "profile_differences": [
            {"profile": key, "baseline": view.plan.baseline, "changes": found} for key, found in shown["changes"]
        ],
    }


def _classes(failures: Failures) -> list[dict[str, Any]]:
    return [
        {
            "failure_class": group.what,
            "fault": group.fault,
            "trials": group.count,
            "by_a_person": group.labelled,
            "profiles": group.profiles,
            "example": group.trials[0].trial,
            "example_reason": group.trials[0].reason,
            "example_steps": group.trials[0].steps[:EXAMPLE_STEPS],
        }
        for group in failures.classes
    ]


def matrix(view: BatchView) -> list[MatrixRow]:
    """One row a task, in the order of the plan."""
    found: dict[TaskRef, dict[str, list[CellState]]] = {}
    for cell in view.cells:
        found.setdefault(cell.task, defaultdict(list))[cell.profile].append(cell)
    return [_matrix_row(task, by_profile) for task, by_profile in found.items()]


def _matrix_row(task: TaskRef, by_profile: dict[str, list[CellState]]) -> MatrixRow:
    cells = {}
    for profile, attempts in by_profile.items():
        counts = Counter(cell.outcome for cell in attempts)
        passed = counts[Outcome.PASSED]
        cells[profile] = MatrixCell(attempts, passed, passed + counts[Outcome.FAILED])
    rates = {cell.rate for cell in cells.values()} - {None}
    unmeasured = any(cell.measured < len(cell.attempts) for cell in cells.values())
    return MatrixRow(task, cells, len(rates) > 1, unmeasured, _pair(by_profile))


def _pair(by_profile: dict[str, list[CellState]]) -> tuple[TrialRow, TrialRow] | None:
    """A failed and a passed trial, of two profiles if possible; else the first trials of two profiles."""
    ran = [
        cell for cells in by_profile.values() for cell in cells if cell.row is not None and cell.row.trial is not None
    ]
    failed = [cell for cell in ran if cell.outcome is not Outcome.PASSED]
    passed = [cell for cell in ran if cell.outcome is Outcome.PASSED]
    across = [(f, p) for f in failed[:20] for p in passed[:20] if f.profile != p.profile]
    within = [(f, p) for f in failed[:1] for p in passed[:1]]
    others = [(ran[0], cell) for cell in ran[1:] if cell.profile != ran[0].profile] if ran else []
    for one, other in (*across[:1], *within, *others[:1]):
        if one.row is not None and other.row is not None:
            return one.row, other.row
    return None
