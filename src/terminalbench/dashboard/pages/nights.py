"""Nights: the list of them, and one: how far it is, who works on it, what it spent, what happened, what it says."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from terminalbench.dashboard.frame import NIGHTS, Crumb, CsvTable, NotFound, Page, PageRequest
from terminalbench.dashboard.links import batch_path, night_results_path, trial_path
from terminalbench.dashboard.site import Site
from terminalbench.overnight.groups import Grouping
from terminalbench.overnight.morning import GROUP_COLUMNS, NOISY, SHOWN, facts, group_rows
from terminalbench.overnight.morning_page import trend_chart
from terminalbench.overnight.night import IterationStatus, IterationWork, NightEvent, WorkerLease
from terminalbench.overnight.nights import NightLook, find_nights
from terminalbench.overnight.summary_model import Flip, NightSummary

_EVENTS = 100
_ITERATION_COLUMNS = (
    "iteration", "status", "profile", "total", "measured", "passed", "errored", "not_run", "pass_rate", "coverage",
    "cost_usd", "cost_unknown_trials", "alert", "batch",
)  # fmt: skip
_NIGHT_COLUMNS = (
    "night", "run_id", "suite", "created_at", "status", "iterations_over", "iterations_planned", "trials", "measured",
    "cost_usd", "cost_unknown_trials", "alerts", "incidents",
)  # fmt: skip
_NIGHT_ORDERS: Mapping[str, Callable[[NightLook], Any]] = {
    "night": lambda night: night.name,
    "status": lambda night: night.status,
    "iterations": lambda night: night.summary and night.summary.over,
    "measured": lambda night: night.summary and night.summary.measured,
    "rate": lambda night: _best_rate(night.summary),
    "cost": lambda night: night.summary and night.summary.cost_usd,
    "alerts": lambda night: night.summary and len(night.summary.alerts) + len(night.summary.incidents),
    "created": lambda night: night.config.created_at,
}


@dataclass(frozen=True)
class LeasedWorker:
    """A worker and what it works on."""

    work: IterationWork
    lease: WorkerLease


def nights_page(site: Site, ask: PageRequest) -> Page:
    """The list of nights, sorted by a column, else newest first."""
    by = ask.order()
    found = by.of(find_nights(site.root), _NIGHT_ORDERS)
    return Page(
        title="Nights",
        template="nights.html",
        values={"nights": found, "by": by},
        tables={"nights": lambda: CsvTable(_NIGHT_COLUMNS, [_night_row(night) for night in found])},
        document=lambda: [{"night": night.name, "status": night.status, "summary": night.summary} for night in found],
        feed=NIGHTS,
        section=NIGHTS,
    )


def night_page(site: Site, ask: PageRequest) -> Page:
    """One night."""
    name = ask.parts["night"]
    night = next((one for one in find_nights(site.root) if one.name == name), None)
    if night is None:
        raise NotFound(f"there is no night {name}")
    summary, events = night.summary, night.events()
    values: dict[str, Any] = {
        "night": night,
        "said": summary,
        "iterations": summary.iterations[::-1] if summary is not None else [],
        "workers": _workers(night),
        "waiting": _waiting(night),
        "events": events[-_EVENTS:][::-1],
        "event_count": len(events),
        "trend": trend_chart(summary) if summary is not None else None,
        "facts": facts(summary) if summary is not None else [],
        "batch_link": lambda batch: _results(site, night) + batch_path(batch),
        "trial_link": lambda path: _results(site, night) + _trial_link(path),
        "flips": _flips(summary),
        "groups": [(by, rows) for by in Grouping if summary is not None and (rows := group_rows(summary, by))],
        "group_columns": GROUP_COLUMNS,
    }
    return Page(
        title=f"Night {night.config.run_id}",
        template="night.html",
        values=values,
        crumbs=(Crumb("Nights", NIGHTS),),
        tables={
            "iterations": lambda: CsvTable(_ITERATION_COLUMNS, _iteration_rows(summary)),
            "events": lambda: CsvTable.of(events, {field: field for field in NightEvent.__struct_fields__}),
        },
        document=lambda: {
            "night": night.name,
            "config": night.config,
            "status": night.status,
            "state": night.state,
            "summary": summary,
        },
        feed=NIGHTS,
        section=NIGHTS,
    )


def _workers(night: NightLook) -> list[LeasedWorker]:
    """Who works now; what a night that is over says of workers is no longer so."""
    if night.state is None or night.status != "running":
        return []
    return [LeasedWorker(work, work.lease) for work in night.state.work if work.lease is not None]


def _waiting(night: NightLook) -> int:
    return sum(work.status is IterationStatus.WAITING for work in night.state.work) if night.state is not None else 0


def _results(site: Site, night: NightLook) -> str:
    """Where the pages of the night's batches begin: in the results that are shown, else in its own."""
    return "" if night.folder.results_root.resolve() == site.root else night_results_path(night.name)


def _trial_link(path: str) -> str:
    """The page of a trial, from its folder below that of the night: `batches/<batch>/runs/<job>/<trial>`."""
    _, slug, number, _, job, name = path.split("/")
    return trial_path(f"{slug}/{number}", job, name)


def _flips(summary: NightSummary | None) -> list[tuple[str, list[Flip]]]:
    """What changed from one iteration to the next, the last of each kind first; what is more than noise before it."""
    found = summary.flips if summary is not None else []
    kinds = (("More than noise", [f for f in found if not f.noise]), (NOISY, [f for f in found if f.noise]))
    return [(title, flips[-SHOWN:][::-1]) for title, flips in kinds if flips]


def _best_rate(summary: NightSummary | None) -> float | None:
    known = [model.pass_rate for model in summary.models if model.pass_rate is not None] if summary is not None else []
    return max(known, default=None)


def _night_row(night: NightLook) -> tuple[object, ...]:
    said, config = night.summary, night.config
    head = (night.name, config.run_id, config.suite_name, config.created_at, night.status)
    if said is None:
        return (*head, None, config.iterations, None, None, None, None, None, None)
    counts = (said.over, said.iterations_planned, said.total, said.measured, said.cost_usd, said.cost_unknown)
    return (*head, *counts, len(said.alerts), len(said.incidents))


def _iteration_rows(summary: NightSummary | None) -> list[tuple[object, ...]]:
    if summary is None:
        return []
    return [
        (
            line.number, line.status, one.profile, one.total, one.measured, one.passed, one.errored, one.not_run,
            one.pass_rate, one.coverage, one.cost_usd, one.cost_unknown, one.alert, line.batch,
        )
        for line in summary.iterations
        for one in line.profiles
    ]  # fmt: skip
