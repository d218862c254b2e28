"""Batches as rows: one a planned trial, with its cost and that of every try it superseded."""

from collections.abc import Sequence
from typing import Any

from terminalbench.analytics.model import Row
from terminalbench.analytics.settings import profile_names
from terminalbench.experiments.agents import agent_info
from terminalbench.experiments.plan import Plan
from terminalbench.harbor.results import ReadState
from terminalbench.index.export import elapsed_sec
from terminalbench.index.queries import BatchView, CellState, TrialRow
from terminalbench.records import Usage

_SHOWS_ONLY = {"--debug", "-q", "--quiet", "--silent", "--stream", "--no-stream", "--delete", "--no-delete"}
"""Arguments of `harbor run` that change nothing a trial measures."""


def rows_of(views: Sequence[BatchView]) -> list[Row]:
    """One row a planned trial of every batch. A profile that was another treatment elsewhere is `key@batch`."""
    names = profile_names(views)
    rows: list[Row] = []
    for view in views:
        tries = _tries_by_cell(view)
        free = {job.profile: _calls_no_model(view.plan, job.profile) for job in view.plan.jobs}
        ids = {job.profile: job.profile_id for job in view.plan.jobs}
        environment = _environment(view.plan.settings)
        for place, cell in enumerate(view.cells):
            fields = _trial_fields(view.batch, cell) | _spend(cell, tries.get(place, []), free[cell.profile])
            row = Row(
                task=cell.task,
                profile=names[view.batch, cell.profile],
                attempt=cell.attempt,
                outcome=cell.outcome,
                batch=view.batch,
                reason=cell.reason,
                environment=environment,
                profile_id=ids[cell.profile],
                **fields,
            )
            rows.append(row)
    return rows


def _trial_fields(batch: str, cell: CellState) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if cell.row is not None and cell.row.state != ReadState.HELD:
        fields["trial"] = f"{batch}/{cell.row.job}/{cell.row.name}"
    trial = cell.row.trial if cell.row is not None else None
    if trial is not None:
        fields |= {
            "error_class": trial.error_class,
            "agent_sec": trial.phases.agent_sec,
            "wall_sec": elapsed_sec(trial.started_at, trial.finished_at),
            "started_at": trial.started_at,
            "finished_at": trial.finished_at,
            "task_digest": trial.task_digest or trial.task_checksum,
            "agent": trial.agent,
            "agent_version": trial.agent_version,
            "model": trial.model,
            "simulated": trial.simulated,
        }
    return fields


def _spend(cell: CellState, superseded: list[TrialRow], free: bool) -> dict[str, Any]:
    """Money and tokens of a cell: its own trial and the tries before it. One that never started costs nothing."""
    tries = [row for row in ([cell.row] if cell.row is not None else []) + superseded if row.state != ReadState.HELD]
    if not tries:
        return {}
    fields: dict[str, Any] = {"superseded": len(tries) - (cell.row in tries)}
    costs = [0.0 if free else row.usage.cost_usd for row in tries]
    tokens = [0 if free else _tokens(row.usage) for row in tries]
    known = [cost for cost in costs if cost is not None]
    fields["cost_known_usd"] = sum(known) if known else None
    fields["cost_unknown"] = len(costs) - len(known)
    fields["cost_usd"] = sum(known) if len(known) == len(costs) else None
    counted = [count for count in tokens if count is not None]
    fields["tokens_known"] = sum(counted) if counted else None
    fields["tokens_unknown"] = len(tokens) - len(counted)
    fields["tokens"] = sum(counted) if len(counted) == len(tokens) else None
    return fields


def _tokens(usage: Usage) -> int | None:
    """All tokens of a trial; a provider without a cache reports none for it, but in and out must be known."""
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    return usage.input_tokens + usage.output_tokens + (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)


def _tries_by_cell(view: BatchView) -> dict[int, list[TrialRow]]:
    """The superseded tries of each cell: by the name of the trial they belong to, else the task's first attempt."""
    labels = {(job.profile, t.label, t.ref.id): t.ref for job in view.plan.jobs for t in job.tasks}
    first: dict[tuple[str, str, str], int] = {}
    by_trial: dict[tuple[str, str], int] = {}
    for place, cell in enumerate(view.cells):
        first.setdefault((cell.profile, cell.task.dataset, cell.task.id), place)
        if cell.row is not None:
            by_trial[cell.row.job, cell.row.name] = place
    tries: dict[int, list[TrialRow]] = {}
    for row in view.superseded:
        place = by_trial.get((row.job, row.name.rsplit("-try", 1)[0]))
        if place is None:
            ref = labels.get((row.profile or "", row.dataset or "", row.task or ""))
            place = first.get((row.profile or "", ref.dataset, ref.id)) if ref is not None else None
        if place is None:
            place = next((i for i, cell in enumerate(view.cells) if cell.profile == row.profile), None)
        if place is not None:
            tries.setdefault(place, []).append(row)
    return tries


def _calls_no_model(plan: Plan, profile: str) -> bool:
    """Whether a profile's agent calls no model: it costs nothing, which is not unknown."""
    record = next((p for p in plan.profiles if p.key == profile), None)
    info = agent_info(record.content["agent"]) if record is not None else None
    return info is not None and not info.model


def _environment(settings: dict[str, Any]) -> str | None:
    """Where trials ran, with what makes one such place unlike another."""
    parts = [settings.get("container_env")]
    if settings.get("timeout_multiplier") not in (None, 1.0):
        parts.append(f"timeouts x{settings['timeout_multiplier']:g}")
    parts += [argument for argument in settings.get("harbor_args") or [] if argument not in _SHOWS_ONLY]
    return " ".join(filter(None, parts)) or None
