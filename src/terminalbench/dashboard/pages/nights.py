"""Nights: the list of them, and one: how far it is, who works on it, what it spent, what happened, what it says."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from terminalbench.dashboard.frame import NIGHTS, Crumb, CsvTable, NotFound, Page, PageRequest
from terminalbench.dashboard.links import Links, batch_path, night_results_path, trial_path
from terminalbench.dashboard.site import Site
from terminalbench.overnight.morning import labelled, sections
from terminalbench.overnight.morning_page import timeline_chart, trend_chart
from terminalbench.overnight.night import IterationStatus, IterationWork, NightEvent, WorkerLease
from terminalbench.overnight.nights import NightLook, find_nights
from terminalbench.overnight.summary_model import IterationLine, IterationRate, NightSummary

_EVENTS = 100
_ITERATION_COLUMNS = {
    "iteration": "line.number", "status": "line.status", "profile": "one.profile", "total": "one.total",
    "measured": "one.measured", "passed": "one.passed", "errored": "one.errored", "not_run": "one.not_run",
    "pass_rate": "one.pass_rate", "coverage": "one.coverage", "cost_usd": "one.cost_usd",
    "cost_unknown_trials": "one.cost_unknown", "alert": "one.alert", "batch": "line.batch",
}  # fmt: skip
_NIGHT_COLUMNS: Mapping[str, str | Callable[[NightLook], Any]] = {
    "night": "name", "run_id": "config.run_id", "suite": "config.suite_name", "created_at": "config.created_at",
    "status": "status", "iterations_over": "summary.over", "iterations_planned": "config.iterations",
    "trials": "summary.total", "measured": "summary.measured", "cost_usd": "summary.cost_usd",
    "cost_unknown_trials": "summary.cost_unknown",
    "alerts": lambda night: night.summary and len(night.summary.alerts),
    "incidents": lambda night: night.summary and len(night.summary.incidents),
}  # fmt: skip
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
        tables={"nights": lambda: CsvTable.of(found, _NIGHT_COLUMNS)},
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
        "workers": _workers(night),
        "waiting": _waiting(night),
        "events": events[-_EVENTS:][::-1],
        "event_count": len(events),
        "page_of": lambda path: _results(site, night) + _page_of(path),
        **(_said(site, ask, night, summary) if summary is not None else {}),
    }
    return Page(
        title=f"Night {night.config.run_id}",
        template="night.html",
        values=values,
        crumbs=(Crumb("Nights", NIGHTS),),
        tables={
            "iterations": lambda: CsvTable.of(_iteration_rows(summary), _ITERATION_COLUMNS),
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


def _said(site: Site, ask: PageRequest, night: NightLook, summary: NightSummary) -> dict[str, Any]:
    """Return what the summary has to say, as the morning report says it."""
    links, start = Links(ask.path, static=ask.static), _results(site, night)
    return {
        "answer": labelled(summary.headlines),
        "sections": sections(summary),
        "trend": trend_chart(summary),
        "timeline": timeline_chart(summary, lambda batch: links.to(start + batch_path(batch))),
    }


def _workers(night: NightLook) -> list[LeasedWorker]:
    """Return who works now; what a night that is over says of workers is no longer so."""
    if night.state is None or night.status != "running":
        return []
    return [LeasedWorker(work, work.lease) for work in night.state.work if work.lease is not None]


def _waiting(night: NightLook) -> int:
    return sum(work.status is IterationStatus.WAITING for work in night.state.work) if night.state is not None else 0


def _results(site: Site, night: NightLook) -> str:
    """Return where the pages of the night's batches begin: in the results that are shown, else in its own."""
    return "" if night.folder.results_root.resolve() == site.root else night_results_path(night.name)


def _page_of(path: str) -> str:
    """The page of a folder below that of the night, `batches/<batch>` or `batches/<batch>/runs/<job>/<trial>`."""
    _, slug, number, *trial = path.split("/")
    return trial_path(f"{slug}/{number}", *trial[1:]) if trial else batch_path(f"{slug}/{number}")


def _best_rate(summary: NightSummary | None) -> float | None:
    known = [model.pass_rate for model in summary.models if model.pass_rate is not None] if summary is not None else []
    return max(known, default=None)


class IterationRow(NamedTuple):
    """A profile in an iteration, as a line of the table."""

    line: IterationLine
    one: IterationRate


def _iteration_rows(summary: NightSummary | None) -> list[IterationRow]:
    lines = summary.iterations if summary is not None else []
    return [IterationRow(line, one) for line in lines for one in line.profiles]
