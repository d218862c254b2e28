"""One batch: how it stands, profile by profile and task by task, what was planned, and what departed from it."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from terminalbench.dashboard.findings import Failures, batch_failures, classify_missing
from terminalbench.dashboard.frame import (
    Crumb,
    CsvTable,
    Page,
    PageRequest,
    compare_path,
    experiment_path,
    night_path,
    training_path,
    why_path,
)
from terminalbench.dashboard.live import ShownState, named, outcome_bars, place, running_cells, waits
from terminalbench.dashboard.pages.lists import trial_table
from terminalbench.dashboard.pages.verdicts import ShownComparison, batch_verdict, contrast_table, has_instances
from terminalbench.dashboard.site import Site
from terminalbench.decode import decode
from terminalbench.experiments.plan import Plan, ProfileRecord
from terminalbench.experiments.profile_changes import differences, value_text
from terminalbench.index.pages import BatchSummary, SortOrder, TrialFilter, Window, find_trials
from terminalbench.index.queries import BatchView, CellState, TrialRow
from terminalbench.index.totals import ProfileTotals, Reason, not_measured, profile_totals
from terminalbench.live.status import with_running
from terminalbench.overnight.night import RUN_LABEL
from terminalbench.overnight.nights import HERE, look
from terminalbench.records.counts import Counts
from terminalbench.records.trial import Outcome, TaskRef
from terminalbench.report.pictures import forest_chart, front_chart, front_points
from terminalbench.trainer.journal import TRAINING_LABEL
from terminalbench.trainer.lineage import Variant
from terminalbench.trainer.training import trainings

SHOWS = {"": "all tasks", "differ": "where profiles differ", "unmeasured": "not all measured"}
ORDERS = {"": "as planned", "task": "by name", "worst": "fewest passes first", "apart": "most different first"}


@dataclass(frozen=True)
class MatrixCell:
    """One profile at one task: its attempts, in order."""

    attempts: Sequence[CellState]
    counts: Counts


@dataclass(frozen=True)
class MatrixRow:
    """One task under every profile. `pair` are two trials worth seeing side by side, if there are any."""

    task: TaskRef
    cells: dict[str, MatrixCell]
    differs: bool
    unmeasured: bool
    pair: tuple[TrialRow, TrialRow] | None

    @property
    def rates(self) -> list[float]:
        """Return the pass rates of the profiles with a measured attempt."""
        return [cell.counts.rate for cell in self.cells.values() if cell.counts.rate is not None]


_VALUES: Mapping[str, Callable[[MatrixRow], Any]] = {
    "task": lambda row: (row.task.id, row.task.dataset),
    "worst": lambda row: sum(row.rates) / len(row.rates) if row.rates else None,
    "apart": lambda row: min(row.rates) - max(row.rates) if row.rates else None,
}


@dataclass(frozen=True)
class MatrixFilter:
    """Which rows: `text` is in the name of the task, `show` and `order` are keys of SHOWS and ORDERS."""

    text: str = ""
    show: str = ""
    order: str = ""

    def of(self, rows: Sequence[MatrixRow]) -> list[MatrixRow]:
        """Those rows, in that order; equal ones as planned."""
        return SortOrder(self.order).of((row for row in rows if self._fits(row)), _VALUES)

    def _fits(self, row: MatrixRow) -> bool:
        if self.text and self.text.lower() not in row.task.name.lower():
            return False
        return {"differ": row.differs, "unmeasured": row.unmeasured}.get(self.show, True)


def matrix(view: BatchView) -> list[MatrixRow]:
    """One row a task, in the order of the plan."""
    found: dict[TaskRef, dict[str, list[CellState]]] = {}
    for cell in view.cells:
        found.setdefault(cell.task, defaultdict(list))[cell.profile].append(cell)
    return [_matrix_row(task, by_profile) for task, by_profile in found.items()]


def _matrix_row(task: TaskRef, by_profile: dict[str, list[CellState]]) -> MatrixRow:
    cells = {}
    for profile, attempts in by_profile.items():
        passed = sum(cell.outcome is Outcome.PASSED for cell in attempts)
        cells[profile] = MatrixCell(attempts, Counts(passed, sum(cell.measured for cell in attempts)))
    rates = {cell.counts.rate for cell in cells.values()} - {None}
    unmeasured = any(cell.counts.measured < len(cell.attempts) for cell in cells.values())
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


TASKS_PER_PAGE = 60
REASONS = 40
EXAMPLE_STEPS = 6
PROFILE_ORDERS: Mapping[str, Callable[[ProfileTotals], Any]] = {
    "profile": lambda p: p.profile, "rate": lambda p: p.rate, "passed": lambda p: p.passed,
    "failed": lambda p: p.failed, "not_measured": lambda p: p.planned - p.measured, "coverage": lambda p: p.coverage,
    "of_planned": lambda p: p.rate_all, "cost": lambda p: None if p.no_model else p.cost_usd,
    "per_pass": lambda p: None if p.no_model else p.cost_per_pass, "tokens": lambda p: p.tokens,
    "time": lambda p: p.mean_wall_sec,
}  # fmt: skip
"""What the table of profiles can be sorted by."""
_CELL_COLUMNS = {
    "dataset": "task.dataset", "task": "task.id", "family": "task.family", "profile": "profile", "attempt": "attempt",
    "outcome": "outcome", "reason": "reason", "trial": "row.key", "cost_usd": "row.usage.cost_usd",
}  # fmt: skip
_PROFILE_COLUMNS: Mapping[str, str | Callable[[ProfileTotals], Any]] = {
    "profile": "profile", "planned": "planned", "passed": "passed", "failed": "failed",
    "not_measured": lambda p: p.planned - p.measured, "coverage": "coverage", "pass_rate": "rate",
    "pass_rate_of_planned": "rate_all", "cost_usd": "cost_usd", "cost_unknown_trials": "cost_unknown",
    "tokens": "tokens", "tokens_unknown_trials": "tokens_unknown", "cost_per_pass_usd": "cost_per_pass",
    "mean_wall_sec": "mean_wall_sec", "superseded_trials": "superseded", "simulated": "simulated",
}  # fmt: skip


def batch_page(site: Site, ask: PageRequest) -> Page:
    """The page of a batch."""
    summary = site.summary(ask.batch)
    view = site.view(summary)
    live = site.live_state(summary.batch)
    values: dict[str, Any] = {
        "batch": summary,
        "live": live,
        "left_sec": live.left_sec if live is not None else None,
        "window": Window(1, TASKS_PER_PAGE),
        "made_by": _made_by(site, summary),
        "instances": view is not None and has_instances(view.plan),
        "plan": None,
    }

    def trials() -> CsvTable:
        return trial_table(find_trials(site.index, TrialFilter(batch=summary.batch), Window(size=None)).items)

    tables = {"trials": trials}
    if view is not None:
        values |= _planned(site, ask, summary, view, live)
        values |= _running(view, live, values)
        tables |= {
            "profiles": lambda: CsvTable.of(profile_totals(view), _PROFILE_COLUMNS),
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


def prepare_batch(site: Site, summary: BatchSummary) -> None:
    """Make and keep what takes long at the first look at a batch. Nothing is classified."""
    view = site.view(summary)
    if view is not None:
        has_instances(view.plan)
        batch_failures(site, summary, view)
        _kept(site, summary, view)


@dataclass(frozen=True)
class _BatchTables:
    """The lines of a batch's tables, as long as nothing of it changes."""

    rows: list[MatrixRow]
    totals: list[ProfileTotals]
    reasons: list[Reason]


def _kept(site: Site, summary: BatchSummary, view: BatchView) -> _BatchTables:
    def make() -> _BatchTables:
        return _BatchTables(matrix(view), profile_totals(view), not_measured(view.cells)[:REASONS])

    return site.kept(("tables", summary.batch, summary.version), make)


def _made_by(site: Site, summary: BatchSummary) -> Crumb | None:
    """The training whose batch it is, or the night where its batches are the results that are shown."""
    labels = decode((summary.labels or "{}").encode(), dict[str, str])
    training, run = labels.get(TRAINING_LABEL), labels.get(RUN_LABEL)
    if training is not None and any(one.slug == training for one in trainings(site.project)):
        return Crumb(f"training {training}", training_path(training))
    night = look(site.root.parent) if run is not None and not site.night else None
    return Crumb(f"night {run}", night_path(HERE)) if night is not None and night.config.run_id == run else None


def _running(view: BatchView, live: ShownState | None, shown: dict[str, Any]) -> dict[str, Any]:
    """Return what runs now, by cell; of a live batch, what has not had its turn is told once and is no reason."""
    running = running_cells(view.cells, live.running if live is not None else ())
    found = {"running": running, "place": place, "bars": outcome_bars(shown["profiles"], view.cells, running)}
    if live is None:
        return found
    stopped = [cell for cell in view.cells if place(cell) not in running and not waits(cell)]
    return found | {"reasons": not_measured(stopped)[:REASONS]}


def _planned(
    site: Site, ask: PageRequest, summary: BatchSummary, view: BatchView, live: ShownState | None
) -> dict[str, Any]:
    now = with_running(view, named(live.running) if live is not None else None)
    said = batch_verdict(site, summary, now, wait=ask.static or ask.data)
    failures = batch_failures(site, summary, view)
    if not said.waiting and classify_missing(site, summary, failures, now=ask.static):
        failures = batch_failures(site, summary, view)
    kept = _kept(site, summary, view)
    asked = MatrixFilter(ask.text("task"), ask.text("show"), ask.text("order"))
    wanted = asked.of(kept.rows)
    window = Window(ask.number("page"), len(wanted) or 1 if ask.static else TASKS_PER_PAGE)
    by = ask.order()
    return {
        "plan": view.plan,
        "reasons_of": reasons_of(view.plan),
        "said": said,
        "failures": failures,
        "charts": [chart for chart in _charts(site, summary, said) if chart],
        "summaries": {p.profile: p for p in said.comparison.profiles} if said.comparison else {},
        "contrast_target": lambda c: compare_path((summary.batch, c.new), (summary.batch, c.old)),
        "why_target": lambda c: why_path(summary.batch, c.new, c.old),
        "profiles": kept.totals,
        "sorted_profiles": by.of(kept.totals, PROFILE_ORDERS),
        "by": by,
        "reasons": kept.reasons,
        "rows": wanted[window.offset : window.offset + window.limit],
        "matching": len(wanted),
        "tasks": len(kept.rows),
        "datasets": len({row.task.dataset for row in kept.rows}),
        "window": window,
        "asked": asked,
        "shows": SHOWS,
        "orders": ORDERS,
        "changes": profile_changes(view.plan),
        "superseded": len(view.superseded),
        "has_toml": site.batch(summary.batch).experiment_toml.is_file(),
        "provenance": msgspec.to_builtins(view.plan.provenance),
        "settings": {name: value for name, value in asdict(view.plan.settings).items() if value not in (None, [], {})},
    }


def _charts(site: Site, summary: BatchSummary, said: ShownComparison) -> list[str | None]:
    comparison = said.comparison
    if comparison is None:
        return []

    def draw() -> list[str | None]:
        return [forest_chart(comparison), front_chart(front_points(comparison.profiles))]

    return site.kept(("charts", summary.batch, summary.version), draw)


def reasons_of(plan: Plan) -> dict[str, str]:
    """Return what profiles are called that have their id as their key, those of trainings: by the reason of each."""
    return {p.key: p.description for p in plan.profiles if p.description and p.key.startswith(p.id)}


@dataclass(frozen=True)
class ProfileChange:
    """One aspect in which a profile differs from the baseline: both values, and a diff of the lines of a `long` one."""

    aspect: str
    old: str
    new: str
    lines: list[str]

    @property
    def long(self) -> bool:
        """Return whether a table has no room for it."""
        return "\n" in self.old + self.new or len(self.old) + len(self.new) > 160


def profile_changes(plan: Plan) -> list[tuple[str, list[ProfileChange]]]:
    """Return what makes each profile another treatment than the baseline."""
    baseline = plan.record(plan.baseline)
    if baseline is None:
        return []
    return [(p.key, changes(baseline, p)) for p in plan.profiles if p.key != baseline.key]


def changes(old: ProfileRecord | Variant, new: ProfileRecord | Variant) -> list[ProfileChange]:
    """Return what differs between two profiles, ready to be shown."""
    found = differences(old.content, new.content)
    return [ProfileChange(d.aspect, value_text(d.old), value_text(d.new), d.lines()) for d in found]


def _cell_table(view: BatchView) -> CsvTable:
    return CsvTable.of(view.cells, _CELL_COLUMNS)


def _failure_table(failures: Failures) -> CsvTable:
    rows = [
        (group.what, profile, count, group.trials[0].reason)
        for group in failures.classes
        for profile, count in Counter(group.profiles).most_common()
    ]
    return CsvTable(("failure_class", "profile", "trials", "example_reason"), rows)


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
