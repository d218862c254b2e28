"""The evolver `agent`: a coding agent edits the champion's files in a sandbox, once a night.

The edit is an ordinary trial of an ordinary batch (part `agent`), of any agent that a profile can name: its sandbox
holds the files of the profile and how attempts on train failed. The evaluator, tests, dev, the holdout, the gym and
results are not in it. Killed, the batch is gone on with; what came back is read from its files again, so the same is
proposed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from terminalbench.analytics.rows import rows_of
from terminalbench.errors import UserError
from terminalbench.experiments.agents import agent_info
from terminalbench.experiments.batch import Batch
from terminalbench.records.values import known_total
from terminalbench.trainer.analyzer import clusters
from terminalbench.trainer.batches import EDITOR, BatchPart, TrainingBatches
from terminalbench.trainer.budget import EVOLVER_SHARE, agent_usd
from terminalbench.trainer.environments import open_environment
from terminalbench.trainer.evolvers.edit_task import read_edit, write_edit_task
from terminalbench.trainer.evolvers.protocol import Proposal, SearchStopped
from terminalbench.trainer.evolvers.reflect import FIRST_SHARE, SHOWN_CLUSTERS, question
from terminalbench.trainer.evolvers.search import Search
from terminalbench.trainer.halving import AttemptPlan, spread
from terminalbench.trainer.journal import ModelSpend, RefusedChange

_BUDGET_OPTION = "max_budget_usd"
"""What Claude Code calls the most that a run of it may cost."""


class AgentEvolver:
    """Proposes what a coding agent has made of the champion."""

    def propose(self, search: Search) -> Iterator[Proposal]:
        """One proposal a night; an edit outside its files is refused."""
        if not any(row.profile == search.champion and row.measured for row in search.rows):
            measure = spread(search.train, max(1, search.left // FIRST_SHARE))
            search.measure([search.champion], measure.tasks, measure.attempts)
        found = clusters(search.attempts())[:SHOWN_CLUSTERS]
        parent = search.made()
        place = search.folder / "agent"
        if not place.exists():  # a batch that was begun has its task
            write_edit_task(place, parent, question(search, found))
        written = _edited(search, place)
        try:
            change = read_edit(written, parent)
        except UserError as error:
            search.refused.append(RefusedChange(reason=f"an edit by {_name(search)}", why=error.what))
            return
        yield Proposal(change, source=_name(search), evidence=tuple(t for one in found for t in one.trials))


def _name(search: Search) -> str:
    table = search.plan.table.evolver.profile or {}
    return f"{table.get('agent', 'agent')} {table.get('model', '')}".strip()


def _edited(search: Search, place: Path) -> Path:
    """Where what the agent has written is, once its batch is over; what it cost is told to the night."""
    environment = open_environment(str(place.relative_to(search.plan.root)), search.plan.root)
    batches = TrainingBatches(replace(search.plan, environment=environment), limits=search.limits, steps=search.steps)
    usd = _most_usd(search)
    tables = {EDITOR: _capped(search.plan.table.evolver.profile or {}, usd)}
    view = batches.measured(BatchPart(search.night, "agent", tables, AttemptPlan(environment.tasks, 1), usd))
    rows = rows_of([view])
    costs = [row.cost_usd for row in rows if row.trial is not None]
    search.asked = ModelSpend(
        model=_name(search),
        questions=len(costs),
        cost_usd=known_total(costs),
        cost_unknown=sum(cost is None for cost in costs),
    )
    row = view.cells[0].row
    if row is None or not view.cells[0].measured:
        why = view.cells[0].reason or f"tbench show {view.batch}"
        raise SearchStopped(f"the edit by {_name(search)} did not come to its end: {why}")
    return Batch(batches.folder.parent / view.batch).runs / row.job / row.name / "verifier"


def _most_usd(search: Search) -> float | None:
    """What the edit may cost: as the plan says, else a share of what the night has left."""
    table = search.plan.table
    usd = agent_usd(table.budget, table.evolver)
    left = search.limits.left_usd if search.limits is not None else None
    if usd is None:
        return left * EVOLVER_SHARE if left is not None else None
    return usd if left is None else min(usd, left)


def _capped(table: Mapping[str, Any], usd: float | None) -> dict[str, Any]:
    """The profile that edits, told what it may spend where its agent takes that: it stops by itself."""
    options, known = table.get("options", {}), agent_info(table.get("agent", ""))
    takes = known is not None and _BUDGET_OPTION in (known.options or {})
    if usd is None or not takes or _BUDGET_OPTION in options:
        return dict(table)
    return {**table, "options": {**options, _BUDGET_OPTION: f"{usd:.4f}"}}
