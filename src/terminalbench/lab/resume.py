"""Resuming a batch: what is finished stays, what is missing runs; with a top-up, attempts are added round by round.

Before each round the statistics say what the intervals are, and where attempts narrow them most. The plan grows, is
written before anything runs, and is finished like any other.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.experiment import Experiment
from terminalbench.experiments.plan import JobSpec, Plan
from terminalbench.faults import ErrorClass
from terminalbench.harbor.limits.gate import control_of, gate_of
from terminalbench.index.queries import BatchView, view_batch
from terminalbench.index.scan import scan_batch
from terminalbench.json_files import append_jsonl, read_json, write_json
from terminalbench.lab.arguments import checked, path_of
from terminalbench.lab.run import EarlyStop, FinishedRun, Told, ended, ended_early, listener_of
from terminalbench.lab.select import Named, find_target
from terminalbench.locks import lock
from terminalbench.records.event import Event
from terminalbench.records.trial import TaskRef
from terminalbench.runner import resume as runner
from terminalbench.runner.executors.local import harbor_loaded_once
from terminalbench.runner.resume import ALL_ERRORS, ResumeRequest
from terminalbench.runner.run import Listener, RunResult
from terminalbench.text.numbers import plural, points


@checked
def resume(
    batch: Named,
    *,
    attempts: int | None = None,
    retry_errors: str | None = None,
    profiles: Sequence[str] = (),
    tasks: Sequence[str] = (),
    top_up: bool = False,
    strict: bool = False,
    accept_changed: bool = False,
    to_the_end: bool = False,
    listener: Told | None = None,
    root: Path | str | None = None,
) -> FinishedRun:
    """Run what is missing of a batch. Returns when it is over.

    A batch that is named by its experiment first gains what the file has gained: attempts, tasks, profiles. `attempts`
    adds attempts until each task has this many; `retry_errors` runs errored trials again, of one class or "all";
    `profiles` and `tasks` pick some of the batch, the others stay as they are; `top_up` adds attempts under the rule of
    the plan, and goes alone. Code, skills, MCP servers and tasks that changed since the plan are an error; with
    `accept_changed` they run, and the plan keeps a departure. A batch that ended early, by its looks at any time, runs
    to its end. Otherwise as `run`.
    """
    _refuse_unknown_class(retry_errors)
    target, told = find_target(batch, root=path_of(root)), listener_of(listener)
    if top_up:
        if attempts is not None or retry_errors is not None or profiles or tasks:
            raise UserError("--top-up cannot be combined with other choices: its rule decides what runs")
        with harbor_loaded_once():
            result = top_up_rounds(target.batch, target.experiment, told, accept_changed=accept_changed)
        return ended(result, told)
    request = ResumeRequest(
        attempts,
        retry_errors,
        strict=strict,
        accept_changed=accept_changed,
        profiles=tuple(profiles),
        tasks=tuple(tasks),
    )
    followed = told if to_the_end or ended_early(target.batch) else EarlyStop(told).listener()
    with harbor_loaded_once():
        result = runner.resume(target.batch, request, target.experiment, followed)
    return ended(result, told)


def _refuse_unknown_class(name: str | None) -> None:
    """A class of failures is named by the analysis, not by the errors: say which errors are meant, if any."""
    if name in (None, ALL_ERRORS, *ErrorClass):
        return
    from terminalbench.analytics.findings.failure import FAILURE_CLASSES
    from terminalbench.analytics.labels import STATES

    if name in STATES:
        raise UserError(
            f'"{name}" is not an error class',
            hint="resume always runs trials that did not end: leave out --retry-errors",
        )
    if name in FAILURE_CLASSES:
        hint = "a trial that failed with a verdict is measured, not broken, so it is not run again"
        if name.startswith("timeout_"):
            hint = (
                f"the class of every time-out is {ErrorClass.AGENT_TIMEOUT}: give --retry-errors "
                f"{ErrorClass.AGENT_TIMEOUT}"
            )
        raise UserError(f'"{name}" is a failure class (tbench errors), not an error class', hint=hint)
    known = ", ".join([ALL_ERRORS, *ErrorClass])
    order = "; name the batch before --retry-errors" if "/" in (name or "") else ""
    raise UserError(f'no error class is called "{name}"', hint=f"known: {known}{order}")


_NO_RULE = "its plan has no [top_up] rule"

type Extra = dict[tuple[str, TaskRef], int]
"""Attempts to add, by profile and task."""


@dataclass(frozen=True)
class Choice:
    """The decision of one look at the batch: the attempts to add, or none; and why, for a person."""

    reason: str
    extra: Extra = field(default_factory=dict)


def top_up_rounds(
    batch: Batch, experiment: Experiment | None, listener: Listener, *, accept_changed: bool = False
) -> RunResult:
    """Finish the batch, then add attempts in rounds until the rule adds none or nothing more may run.

    The listener is told why at each round.
    """
    _refuse_without_rule(batch, experiment)
    started = time.monotonic()
    request = ResumeRequest(accept_changed=accept_changed)
    result = runner.resume(batch, request, experiment, listener)
    while not result.interrupted and result.stopped is None:
        used_sec = time.monotonic() - started
        scan_batch(batch)
        view = view_batch(batch)
        closed = _closed(batch, view.plan, used_sec)
        if closed is not None:
            listener.note(f"top-up ends: {closed}")
            return result
        choice = _choose(view)
        listener.note(f"top-up: {choice.reason}" if choice.extra else f"top-up ends: {choice.reason}")
        if not choice.extra:
            return result
        _grow(batch, choice)
        result = runner.resume(batch, replace(request, used_sec=used_sec), None, listener)
    return result


def _choose(view: BatchView) -> Choice:
    """Return what to add to a batch, by the rule in its plan."""
    from terminalbench.analytics.allocate import TopUp, allocate
    from terminalbench.analytics.compare import compare
    from terminalbench.analytics.rows import rows_of
    from terminalbench.analytics.settings import settings_of

    excluded = view.plan.exclusions()  # attempts at what does not run would narrow nothing
    rows = [row for row in rows_of([view]) if excluded(row.profile, row.task) is None]
    comparison = compare(rows, settings_of([view]))
    rule = view.plan.top_up
    if rule is None:
        raise UserError(_NO_RULE, where=view.batch)
    if not comparison.contrasts:
        raise UserError("has only one profile, so there is nothing to compare", where=view.batch)
    # A round gives every profile of a task one attempt, or none.
    trials = max(rule.trials_per_round, len(view.plan.jobs))
    wanted = TopUp(half_width=rule.interval_width / 2, max_attempts=rule.max_attempts, round_trials=trials)
    found = allocate(comparison, wanted)
    if found.done:
        return Choice(found.reason)
    extra = {(more.profile, more.task): more.attempts for more in found.more}
    now, expected = (points(None if w is None else 2 * w, sign=False) for w in (found.half_width, found.expected))
    where = f"{plural(found.trials, 'trial')} more on {plural(len({task for _, task in extra}), 'task')}"
    return Choice(f"{where}; widest interval now {now}, expected {expected}", extra)


def with_extra(plan: Plan, extra: Extra) -> Plan:
    """The plan with these attempts more. Pure."""

    def grown(job: JobSpec) -> JobSpec:
        tasks = (
            msgspec.structs.replace(task, extra=task.extra + extra.get((job.profile, task.ref), 0))
            for task in job.tasks
        )
        return msgspec.structs.replace(job, tasks=tuple(tasks))

    return msgspec.structs.replace(plan, jobs=tuple(map(grown, plan.jobs)))


def _refuse_without_rule(batch: Batch, experiment: Experiment | None) -> None:
    plan: Plan = read_json(batch.plan_json, Plan)
    if plan.top_up is None and (experiment is None or experiment.top_up is None):
        raise UserError(
            _NO_RULE,
            where=str(batch.folder),
            hint="add a [top_up] table to the experiment file, then: tbench resume EXPERIMENT.toml --top-up",
        )


def _closed(batch: Batch, plan: Plan, used_sec: float) -> str | None:
    """Return why no further round makes sense: the deadline, the budget, or a profile that was stopped."""
    seconds = plan.settings.run_timeout_sec
    if seconds is not None and used_sec >= seconds:
        return f"the deadline (run.run_timeout_sec = {seconds:g}) has passed"
    stopped = control_of(batch, plan).read().stopped
    if stopped:
        profile, reason = next(iter(stopped.items()))
        return f"{profile} was stopped: {reason}"
    if not batch.gate_json.exists():
        return None
    gate = gate_of(batch, plan)
    if plan.gate is None and not gate.read().budget_usd == plan.settings.budget_usd is not None:
        return None
    closed = (gate.why_closed(job.profile) for job in plan.jobs)
    return next((refusal.reason for refusal in closed if refusal is not None), None)


def _grow(batch: Batch, choice: Choice) -> None:
    """Write the grown plan and the reason, before anything runs."""
    with lock(batch.lock, f"tbench resume --top-up {batch.folder.parent.name}/{batch.folder.name}"):
        plan: Plan = read_json(batch.plan_json, Plan)
        write_json(batch.plan_json, with_extra(plan, choice.extra))
        added = [
            {"profile": profile, "task": task.id, "dataset": task.dataset, "attempts": count}
            for (profile, task), count in choice.extra.items()
        ]
        detail = {"top_up": {"reason": choice.reason, "added": added}}
        append_jsonl(batch.events_jsonl, Event.now("note", plan.slug, detail=detail))
