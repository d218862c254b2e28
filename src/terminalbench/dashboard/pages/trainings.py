"""Trainings: the list of them, and one: its champion, who challenges, the lineage, and every declared comparison."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from terminalbench.dashboard.frame import TRAININGS, Crumb, CsvTable, NotFound, Page, PageRequest
from terminalbench.dashboard.links import batch_path
from terminalbench.dashboard.pages.batch import ProfileChange, changes
from terminalbench.dashboard.site import Site
from terminalbench.index.pages import find_batch
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

_COLUMNS: Mapping[str, str | Callable[[Training], Any]] = {
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
_ORDERS: Mapping[str, Callable[[Training], Any]] = {
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
    found = by.of(trainings(site.project), _ORDERS)
    return Page(
        title="Trainings",
        template="trainings.html",
        values={"lines": [_line(one) for one in found], "by": by},
        tables={"trainings": lambda: CsvTable.of(found, _COLUMNS)},
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
