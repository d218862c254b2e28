"""Batches as rows: one a planned trial, with its cost and that of every try it superseded."""

from collections.abc import Sequence
from typing import Any

import msgspec

from terminalbench.analytics.model import Row
from terminalbench.analytics.settings import profile_names
from terminalbench.experiments.plan import Exclusion, ExclusionKind
from terminalbench.experiments.tables import RunTable
from terminalbench.faults import ErrorClass
from terminalbench.index.queries import BatchView, CellState, Rerun, TrialRow, row_outcome
from terminalbench.index.totals import of_unknown_cost, raised_budget, spend
from terminalbench.records.counts import Spend, pass_rates
from terminalbench.records.trial import AgentStatus, Outcome, ReadState, Trial
from terminalbench.registry import is_import_path
from terminalbench.text.numbers import percent, plural, some

_SHOWS_ONLY = {"--debug", "-q", "--quiet", "--silent", "--stream", "--no-stream", "--delete", "--no-delete"}
"""Arguments of `harbor run` that change nothing a trial measures."""
_SAME = ("error_class", "started_at", "finished_at", "agent_version", "model", "delivery", "simulated")
"""What a row has from its trial as it is."""
_BROKEN = (Outcome.ERRORED, Outcome.TIMED_OUT)
"""How a try ended that broke by itself: one that was interrupted says nothing of its profile."""


def rows_of(views: Sequence[BatchView], *, by_snapshot: bool = False) -> list[Row]:
    """One row a planned trial of every batch. A profile that was another treatment elsewhere is `key@batch`.

    With `by_snapshot` that is also one whose memory held other lessons.
    A task has the family that the first batch gives it which knows one: it is one unit, whichever batch a trial is of.
    """
    names = profile_names(views, by_snapshot=by_snapshot)
    known = [task.ref for view in views for job in view.plan.jobs for task in job.tasks if task.ref.family is not None]
    tasks = {ref: ref for ref in reversed(known)}
    rows: list[Row] = []
    for view in views:
        tries, repeats = _tries_by_cell(view), view.repeats()
        free = view.plan.without_model()
        ids = {job.profile: job.profile_id for job in view.plan.jobs}
        environment = _environment(view.plan.settings)
        own = {record.key for record in view.plan.profiles if is_import_path(str(record.content.get("agent")))}
        excluded = view.plan.exclusions()
        held = _before_a_resume(view) if any(_is(one, ExclusionKind.BUDGET) for one in view.plan.excluded) else None
        for place, cell in enumerate(view.cells):
            started = cell.row if cell.row is not None and cell.row.state != ReadState.HELD else None
            again = [row for row in tries.get(place, []) if row.state != ReadState.HELD]
            tries_of_it = [*([started] if started is not None else []), *again]
            exclusion = excluded(cell.profile, cell.task)
            resumed = cell.rerun is Rerun.RESUME and _is(exclusion, ExclusionKind.BUDGET)
            row = Row(
                task=tasks.get(cell.task, cell.task),
                profile=names[view.batch, cell.profile],
                attempt=cell.attempt,
                outcome=cell.outcome,
                running=cell.running,
                spared=cell.spared,
                batch=view.batch,
                reason=cell.reason,
                environment=environment,
                profile_id=ids[cell.profile],
                trial=f"{view.batch}/{started.key}" if started is not None else None,
                superseded=len(again),
                **_broken(started, again, view.plan.died, own_agent=cell.profile in own),
                no_model=cell.profile in free,
                rerun=None if _is(exclusion, ExclusionKind.QUARANTINED) else cell.rerun,
                held=held if resumed else None,
                last=repeats.get((cell.profile, cell.task, cell.attempt)),
                spent=spend(tries_of_it, free) if tries_of_it else Spend(),
                **_of_trial(cell),
            )
            rows.append(row)
    return rows


def _is(exclusion: Exclusion | None, kind: ExclusionKind) -> bool:
    return exclusion is not None and exclusion.kind is kind


def _before_a_resume(view: BatchView) -> str:
    """Return what has to be done before a resume runs the trials that a used-up budget held back."""
    unknown = of_unknown_cost(
        view, (one.profile for one in view.plan.excluded if _is(one, ExclusionKind.BUDGET) and one.profile)
    )
    declared = f"declare price or likely_cost_usd of {some(unknown)}, which told no cost, or " if unknown else ""
    return f"{declared}{raised_budget(view.plan)}"


def _broken(
    counts: TrialRow | None, again: Sequence[TrialRow], died: Sequence[str], *, own_agent: bool
) -> dict[str, Any]:
    """Return how many tries before the one that counts broke, how many of those after their agent had begun, and how
    many by a crash of the agent of which nothing else was seen.

    A try that was cut off when its Harbor `died` broke by a crash too: an agent can bring that about. An agent that is
    a user's own may act in its set-up as well.
    """
    until = counts.trial.started_at if counts is not None and counts.trial is not None else None
    tries = [
        row.trial
        for row in again
        if (row_outcome(row) in _BROKEN and row.trial is not None)
        or (row.job in died and row_outcome(row) is Outcome.CANCELLED)
    ]
    before = [one for one in tries if not (one and one.started_at and until and one.started_at > until)]
    begun = [one for one in before if one is None or _had_begun(one, own_agent=own_agent)]
    crashed = sum(one is None or _crashed(one) for one in begun)
    return {"broken": len(before), "redrawn": len(begun), "crashed": crashed}


def _had_begun(trial: Trial, *, own_agent: bool) -> bool:
    return trial.agent_status is not AgentStatus.NOT_STARTED or (own_agent and trial.error_phase == "agent_setup")


def _crashed(trial: Trial) -> bool:
    by_itself = trial.error_class in (ErrorClass.SETUP, ErrorClass.CANCELLED)
    return by_itself and trial.agent_status is not AgentStatus.NOT_STARTED


def repeats_told(rows: Sequence[Row]) -> list[str]:
    """Return for each profile whose attempts were run again after a verdict how many, and what the last tries would
    give."""
    told = []
    for profile in dict.fromkeys(row.profile for row in rows if row.last is not None):
        own = [row for row in rows if row.profile == profile]
        last = [row if row.last is None else msgspec.structs.replace(row, outcome=row.last) for row in own]
        again = plural(sum(row.last is not None for row in own), "trial was", "trials were")
        now, then = percent(pass_rates(own).rate), percent(pass_rates(last).rate)
        told.append(
            f"{profile}: {again} run again after a verdict; the first verdict counts (pass rate {now}), "
            f"by the last it would be {then}"
        )
    return told


def _of_trial(cell: CellState) -> dict[str, Any]:
    trial = cell.row.trial if cell.row is not None else None
    if trial is None:
        return {}
    special = {"agent_sec": trial.phases.agent_sec, "task_digest": trial.task_digest or trial.task_checksum}
    special["suspect"] = tuple(trial.suspect)
    if trial.measured:  # a trial that failed before its tests gave a reward earned none
        special["reward"] = trial.reward if trial.reward is not None else float(trial.outcome is Outcome.PASSED)
    return special | {name: getattr(trial, name) for name in _SAME}


def _tries_by_cell(view: BatchView) -> dict[int, list[TrialRow]]:
    """The superseded tries of each cell: by the name of the trial they belong to, else by their attempt at the task.

    Where that is not known, it is the first attempt.
    """
    labels = {(job.profile, t.label, t.ref.id): t.ref for job in view.plan.jobs for t in job.tasks}
    first: dict[tuple[str, str, str], int] = {}
    by_trial: dict[tuple[str, str], int] = {}
    by_attempt: dict[tuple[str, str, str, int], int] = {}
    for place, cell in enumerate(view.cells):
        first.setdefault((cell.profile, cell.task.dataset, cell.task.id), place)
        by_attempt[cell.profile, cell.task.dataset, cell.task.id, cell.attempt] = place
        if cell.row is not None:
            by_trial[cell.row.job, cell.row.name] = place
    tries: dict[int, list[TrialRow]] = {}
    for row in view.superseded:
        place = by_trial.get((row.job, row.name.rsplit("-try", 1)[0]))
        if place is None:
            ref = labels.get((row.profile or "", row.dataset or "", row.task or ""))
            task = (row.profile or "", ref.dataset, ref.id) if ref is not None else ("", "", "")
            told = row.trial.attempt if row.trial is not None else None
            place = by_attempt.get((*task, told or 0), first.get(task))
        if place is None:
            place = next((i for i, cell in enumerate(view.cells) if cell.profile == row.profile), None)
        if place is not None:
            tries.setdefault(place, []).append(row)
    return tries


def _environment(settings: RunTable) -> str | None:
    """Return where trials ran, with what makes one such place unlike another."""
    parts = [settings.container_env]
    if settings.timeout_multiplier != 1.0:
        parts.append(f"timeouts x{settings.timeout_multiplier:g}")
    parts += [argument for argument in settings.harbor_args if argument not in _SHOWS_ONLY]
    return " ".join(filter(None, parts)) or None
