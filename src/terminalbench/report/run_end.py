"""The end of a run as text and as a document: how to resume a batch that is not complete. Pure."""

from dataclasses import dataclass
from typing import Any

from terminalbench.experiments.plan import ExclusionKind
from terminalbench.index.queries import BatchView, CellState
from terminalbench.index.totals import budget_use, of_unknown_cost, raised_budget
from terminalbench.records.trial import Outcome
from terminalbench.runner.growth import is_quarantined
from terminalbench.text.foreign import printable
from terminalbench.text.names import typed
from terminalbench.text.numbers import dollars, percent, plural, some


@dataclass(frozen=True)
class ResumeWords:
    """The words for how one goes on with a batch: with what is missing, with what broke, with a larger budget."""

    resume: str
    retry: str
    budget: str = "raise run.budget_usd in the experiment file, then: tbench resume FILE.toml"
    cost: str = "price or likely_cost_usd in the experiment file"

    @classmethod
    def of_batch(cls, place: str) -> "ResumeWords":
        """Those of any batch: `tbench resume`."""
        return cls(f"tbench resume {place}", f"tbench resume {place} --retry-errors")


def next_steps(
    view: BatchView,
    place: str,
    *,
    interrupted: bool,
    nothing_ran: bool = False,
    gate_stopped: bool = False,
    ways: ResumeWords | None = None,
) -> list[str]:
    """Return how to run what is missing of a batch, and what stands in the way: the budget, the quarantine, errors.

    `gate_stopped`: all batches of its gate were cancelled, and that was not taken back.
    """
    ways = ways or ResumeWords.of_batch(place)
    excluded = view.plan.exclusions()
    every = [cell for cell in view.cells if not cell.outcome.ended or _unreadable(cell)]
    not_run = [cell for cell in every if not cell.spared]
    open_cells = [cell for cell in not_run if not is_quarantined(excluded(cell.profile, cell.task))]
    left_out = len(not_run) - len(open_cells)
    errored = [cell for cell in view.cells if cell.outcome is Outcome.ERRORED and not _unreadable(cell)]
    broken = sum(not is_quarantined(excluded(cell.profile, cell.task)) for cell in errored)
    lines = ["nothing was missing, so nothing ran"] if nothing_ran and not open_cells else []
    lines += _spared_lines(view, ways)
    why = {cell.profile: e.kind for cell in open_cells if (e := excluded(cell.profile, cell.task)) is not None}
    held = [profile for profile, kind in why.items() if kind is ExclusionKind.BUDGET]
    if held and not interrupted:
        raised = f"{raised_budget(view.plan)}, then: {ways.resume}" if view.plan.gate is not None else ways.budget
        unknown = of_unknown_cost(view, held)
        declared = f"no trial of {some(unknown)} told its cost: declare {ways.cost}, or " if unknown else ""
        lines.append(f"the budget is used up; {declared}{raised}")
    elif interrupted or open_cells:
        first = f"tbench ctl resume --gate {typed(view.plan.gate or '')} --reason TEXT, then: " if gate_stopped else ""
        lines.append(f"{'interrupted; ' if interrupted else ''}to continue: {first}{ways.resume}")
    if left_out:
        lines.append(
            f"quarantined ({plural(left_out, 'trial')}): tbench check FILE.toml --release releases tasks that pass "
            f"again; then: tbench resume FILE.toml"
        )
    if broken:
        lines.append(f"run the broken trials again ({plural(broken, 'trial')}): {ways.retry}")
    return lines


def _spared_lines(view: BatchView, ways: ResumeWords) -> list[str]:
    """Return what a run that ended early has saved, and why it did; nothing of one that did not."""
    spared = [cell for cell in view.cells if cell.spared]
    if not spared:
        return []
    costs = {profile: _mean_cost(view, profile) for profile in {cell.profile for cell in spared}}
    known = all(one is not None for one in costs.values())
    saved = f", about {dollars(sum(costs[cell.profile] or 0.0 for cell in spared))}" if known else ""
    share = f"{len(spared)} of {plural(len(view.cells), 'trial')} ({percent(len(spared) / len(view.cells))})"
    why = dict.fromkeys(cell.reason for cell in spared if cell.reason)
    return [f"ended early, which saved {share}{saved}; to run the rest anyway: {ways.resume}", *map(printable, why)]


def _mean_cost(view: BatchView, profile: str) -> float | None:
    """Return what a trial of a profile has cost so far; None where that is not known, or nothing."""
    known = [cell.row.usage.cost_usd for cell in view.cells if cell.profile == profile and cell.row is not None]
    found = [cost for cost in known if cost]
    return sum(found) / len(found) if found else None


def _unreadable(cell: CellState) -> bool:
    """Return whether its result cannot be read: every resume runs it again."""
    return cell.row is not None and cell.row.unreadable


def end_document(view: BatchView, *, interrupted: bool) -> dict[str, Any]:
    """The end of a run for machines."""
    return {
        "batch": view.batch,
        "folder": view.plan.folder,
        "interrupted": interrupted,
        **({"budget": use} if (use := budget_use(view)) is not None else {}),
        "cells": [
            {
                "profile": cell.profile,
                "task": cell.task,
                "attempt": cell.attempt,
                "outcome": cell.outcome,
                "reason": cell.reason,
                **({"spared": True} if cell.spared else {}),
                "trial": cell.row.name if cell.row else None,
                "job": cell.row.job if cell.row else None,
                "cost_usd": cell.row.usage.cost_usd if cell.row else None,
            }
            for cell in view.cells
        ],
        "superseded": [row.name for row in view.superseded],
    }
