"""Nights and trainings: the lists of them, and each one.

A night: how far it is, who works on it, what it spent, what happened, what it says. A training: its champion, who
challenges, the lineage, and every declared comparison.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from terminalbench.dashboard.frame import (
    NIGHTS,
    TRAININGS,
    Crumb,
    CsvTable,
    Links,
    NotFound,
    Page,
    PageRequest,
    batch_path,
    night_results_path,
    trial_path,
)
from terminalbench.dashboard.pages.batch import ProfileChange, changes
from terminalbench.dashboard.site import Site
from terminalbench.index.pages import find_batch
from terminalbench.overnight.morning import labelled, sections
from terminalbench.overnight.morning_page import timeline_chart, trend_chart
from terminalbench.overnight.night import IterationStatus, IterationWork, NightEvent, WorkerLease
from terminalbench.overnight.nights import NightLook, find_nights
from terminalbench.overnight.summary_model import IterationLine, IterationRate, NightSummary
from terminalbench.records.values import known_total
from terminalbench.report.charts.bars import ForestRow, forest
from terminalbench.trainer.gate import GateAction
from terminalbench.trainer.lineage import Lineage
from terminalbench.trainer.training import (
    Branch,
    DeclaredComparison,
    Training,
    challengers,
    claim,
    ledger,
    sealed_line,
    spent,
    standing,
    trainings,
    tree,
)

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


_TRAINING_COLUMNS: Mapping[str, str | Callable[[Training], Any]] = {
    "training": "slug", "lineage": "lineage_name", "declared_at": "declared.declared_at",
    "nights": lambda one: len(one.nights), "planned": "planned", "champion": "lineage.champion.id",
    "simulated": "simulated", "trials": lambda one: sum(night.trials for night in one.nights),
    "measured": lambda one: sum(night.measured for night in one.nights),
    "cost_usd": lambda one: known_total(night.cost_usd for night in one.nights),
    "cost_unknown_trials": lambda one: sum(night.cost_unknown for night in one.nights),
}  # fmt: skip
_LEDGER_COLUMNS = {
    "night": "night", "part": "part", "profile": "profile", "against": "against", "action": "verdict.action",
    "difference": "verdict.difference", "low": "verdict.interval.low", "high": "verdict.interval.high",
    "p": "verdict.p", "level": "verdict.level", "look": "verdict.look", "looks": "verdict.looks",
    "tasks": "verdict.tasks", "trials": "verdict.trials", "cost_ratio": "verdict.cost_ratio", "said": "what",
}  # fmt: skip
_TRAINING_ORDERS: Mapping[str, Callable[[Training], Any]] = {
    "training": lambda one: one.slug,
    "nights": lambda one: len(one.nights),
    "champion": lambda one: one.lineage.champion and one.lineage.champion.id,
    "spent": lambda one: known_total(night.cost_usd for night in one.nights),
}


@dataclass(frozen=True)
class TrainingLine:
    """A training in the list."""

    training: Training
    standing: str
    spent: str
    claim: str | None


def trainings_page(site: Site, ask: PageRequest) -> Page:
    """The list of trainings, sorted by a column."""
    by = ask.order()
    found = by.of(trainings(site.project), _TRAINING_ORDERS)
    return Page(
        title="Trainings",
        template="trainings.html",
        values={"lines": [_line(one) for one in found], "by": by},
        tables={"trainings": lambda: CsvTable.of(found, _TRAINING_COLUMNS)},
        document=lambda: [{"training": one.slug, "plan": one.declared, "nights": one.nights} for one in found],
        feed=TRAININGS,
        section=TRAININGS,
    )


def training_page(site: Site, ask: PageRequest) -> Page:
    """One training."""
    name = ask.parts["training"]
    training = next((one for one in trainings(site.project) if one.slug == name), None)
    if training is None:
        raise NotFound(f"there is no training {name}")
    lineage, nights = training.lineage, training.nights
    compared = list(ledger(nights))
    names = dict.fromkeys(batch for one in compared for batch in one.batches)
    shown = {batch for batch in names if find_batch(site.index, batch) is not None}
    return Page(
        title=f"Training {name}",
        template="training.html",
        values={
            "training": training,
            "line": _line(training),
            "crowned": [(one, claim(one, lineage)) for one in reversed(lineage.crowned)],
            "challengers": challengers(nights),
            "holdout": [sealed_line(one) for one in training.holdout],
            "tree": tree(lineage),
            "changes": lambda branch: _changes(lineage, branch),
            "reasons_of": {one.id: one.reason for one in lineage.variants.values()},
            "gains": _gains(lineage, compared),
            "compared": compared[::-1],
            "batch_link": lambda batch: batch_path(batch) if batch in shown else None,
            "notes": [(night.night, note) for night in nights for note in night.notes],
        },
        crumbs=(Crumb("Trainings", TRAININGS),),
        tables={
            "comparisons": lambda: CsvTable.of(compared, _LEDGER_COLUMNS),
            "profiles": lambda: CsvTable.of(
                lineage.variants.values(), {f: f for f in ("id", "parent", "reason", "source")}
            ),
        },
        document=lambda: {
            "training": name,
            "plan": training.declared,
            "champions": lineage.crowned,
            "challengers": challengers(nights),
            "nights": nights,
            "holdout": training.holdout,
        },
        feed=TRAININGS,
        section=TRAININGS,
    )


def _line(training: Training) -> TrainingLine:
    crowned, nights = training.lineage.crowned, training.nights
    said = claim(crowned[-1], training.lineage) if crowned else None
    return TrainingLine(
        training, standing(nights, training.planned, training.lineage), spent(nights, training.holdout), said
    )


def _changes(lineage: Lineage, branch: Branch) -> list[ProfileChange]:
    """Return what makes a profile another one than its parent."""
    parent = lineage.variants.get(branch.variant.parent or "")
    return changes(parent, branch.variant) if parent is not None else []


_WORDS = {GateAction.CANARY: "better", GateAction.PROMOTE: "better"}


def _gains(lineage: Lineage, compared: Sequence[DeclaredComparison]) -> str | None:
    """The picture of each night's gain over the champion, with its interval, by night; None before the first."""
    rows = []
    for one in compared:
        found = one.verdict
        if found is None or found.difference is None or one.part not in ("confirm", "canary"):
            continue
        variant, ends = lineage.variants.get(one.profile), found.interval
        name = f"night {one.night}: {variant.reason if variant is not None else one.profile}"
        word = _WORDS.get(found.action) or ("worse" if ends is not None and ends.high < 0 else "inconclusive")
        low, high = (ends.low, ends.high) if ends is not None else (None, None)
        rows.append(ForestRow(name, word, found.difference, low, high))
    return forest(rows, "pass", title="Gain over the champion by night") if rows else None
