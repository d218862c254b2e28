"""Going on with a batch: what is finished stays, the rest runs as further jobs of the same batch.

Reads plan.json and the recorded JobConfigs, not the TOML.
"""

import os
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from terminalbench.errors import TbenchError, UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.config import Experiment
from terminalbench.experiments.plan import Exclusion, JobSpec, Plan, Selection, make_plan
from terminalbench.experiments.plan_secrets import secrets_of
from terminalbench.experiments.profiles import Folder, differences
from terminalbench.experiments.quarantine import quarantine_file
from terminalbench.experiments.tables import DEFAULT_ENV_FILE
from terminalbench.files import LockHeld, append_jsonl, lock, read_json, write_bytes, write_json
from terminalbench.harbor.jobs import job_config, wave_config
from terminalbench.harbor.limits.control import ControlFile
from terminalbench.harbor.preflight import JobRequest
from terminalbench.harbor.read.results import ReadState
from terminalbench.index.plans import plan_or_none
from terminalbench.index.queries import BatchView, CellState, held_trials, view_batch
from terminalbench.index.scan import scan_batch
from terminalbench.live.processes import forget_dead_workers, live_processes
from terminalbench.records import ErrorClass, Event, EventKind, Outcome
from terminalbench.registry import is_import_path
from terminalbench.runner.environment import process_environment
from terminalbench.runner.growth import extended, is_quarantined, refreshed, with_attempts
from terminalbench.runner.kill import end_leftovers
from terminalbench.runner.preflight import check_jobs, known_problems, prepare, refuse_a_full_disk, refuse_left_out
from terminalbench.runner.provenance import as_planned, batch_commits, pinned, planned_ref
from terminalbench.runner.run import (
    Listener,
    RunResult,
    Spent,
    check_shared_gate,
    copy_artifacts,
    free_profiles,
    run_jobs,
)
from terminalbench.runner.scrub import scrub_leftovers
from terminalbench.runner.supervise import free_wave_name
from terminalbench.runner.waves import Cell, next_wave
from terminalbench.secrets.find import references

ALL_ERRORS = "all"


@dataclass(frozen=True)
class ResumeRequest:
    """What to do beyond finishing the plan: more attempts, and which errors to try again (`all`, or a class).

    `used_sec` of the deadline are used up already, by earlier rounds of the same command. `strict`: rather nothing than
    less than what is missing.
    """

    attempts: int | None = None
    retry_errors: str | None = None
    used_sec: float = 0.0
    strict: bool = False

    @property
    def first_round(self) -> bool:
        """Whether this begins a command; orders given to a live run hold for all its rounds."""
        return self.used_sec == 0.0


def resume(
    batch: Batch, request: ResumeRequest, experiment: Experiment | None = None, listener: Listener | None = None
) -> RunResult:
    """Finish a batch; with an experiment, first add what the file has gained. Nothing missing: nothing happens."""
    if request.retry_errors not in (None, ALL_ERRORS, *(kind.value for kind in ErrorClass)):
        known = ", ".join([ALL_ERRORS, *(kind.value for kind in ErrorClass)])
        order = "; name the batch before --retry-errors" if "/" in (request.retry_errors or "") else ""
        raise UserError(f'no error class is called "{request.retry_errors}"', hint=f"known: {known}{order}")
    refuse_a_full_disk(batch.folder)
    with _only_here(batch):
        forget_dead_workers(batch)
        if any(process.kind == "harbor" for process in live_processes(batch)):
            _end_leftovers(batch)
        if request.first_round:
            ControlFile(batch.control_json).clear()
        secrets = secrets_of(plan_or_none(batch))  # what earlier trials may hold, before the file names other env files
        plan = _grown(batch, request, experiment)
        secrets |= secrets_of(plan)
        scanned = scan_batch(batch, secrets=secrets)
        view = view_batch(batch)
        missing = missing_cells(view, request.retry_errors)
        if not missing:
            scrub_leftovers(batch, secrets)
            problems = (*(f"unreadable: {problem}" for problem in scanned.unreadable), *copy_artifacts(batch, plan))
            as_indexed = not (scanned.read or scanned.removed)
            return RunResult(batch, view.plan, False, problems, view, as_indexed=as_indexed)
        listener = listener or Listener()
        if request.first_round:
            spent = spent_so_far(view, request.used_sec)
            for text in check_shared_gate(plan, missing, spent, str(batch.folder)):
                listener.note(text)
        _end_leftovers(batch)
        scrub_leftovers(batch, secrets)  # only now: a container that was left behind would go on writing
        refuse_changed_folders(batch, plan)
        return _run(batch, view, missing, request, listener)


@contextmanager
def _only_here(batch: Batch) -> Generator[None]:
    """Hold the batch; when another process does, say which, and what can be done about it."""
    name = f"{batch.folder.parent.name}/{batch.folder.name}"
    try:
        with lock(batch.lock, f"tbench resume {name}"):
            yield
    except LockHeld as error:
        error.where = str(batch.folder)
        error.hint = f"tbench watch {name} follows it, tbench kill {name} ends it"
        raise


def _end_leftovers(batch: Batch) -> None:
    """End Harbor processes and containers of a runner that was killed: a trial must not end beside its repetition."""
    left = end_leftovers(batch)
    if left or left.strangers:
        names = [f"{p.kind} {p.shown}" for p in (*left.processes, *left.strangers)]
        names += [f"container {c.id[:12]}" for c in left.containers]
        raise TbenchError(
            f"an earlier run left {', '.join(names)}, which could not be ended",
            where=str(batch.folder),
            hint="end it by hand, then resume",
        )


def missing_cells(view: BatchView, retry_errors: str | None = None) -> dict[str, Counter[Cell]]:
    """What is still to run, by profile: what never ran, was cut off or cannot be read, and errors if asked for."""
    labels = {(job.profile, task.ref): task.label for job in view.plan.jobs for task in job.tasks}
    found: dict[str, Counter[Cell]] = {}
    for cell in _not_quarantined(view):
        never = cell.outcome in (Outcome.NOT_RUN, Outcome.CANCELLED) or cell.row is None or cell.row.trial is None
        if never or _is_retried(cell, retry_errors):
            found.setdefault(cell.profile, Counter())[labels[cell.profile, cell.task], cell.task.id] += 1
    return found


def _not_quarantined(view: BatchView) -> list[CellState]:
    excluded = view.plan.exclusions()
    return [cell for cell in view.cells if not is_quarantined(excluded(cell.profile, cell.task))]


def _is_retried(cell: CellState, retry_errors: str | None) -> bool:
    if cell.measured or retry_errors is None or cell.row is None or cell.row.trial is None:
        return False
    return retry_errors in (ALL_ERRORS, cell.row.trial.error_class)


def _grown(batch: Batch, request: ResumeRequest, experiment: Experiment | None) -> Plan:
    """The batch's plan with what was added to it, written before anything runs."""
    plan: Plan = read_json(batch.plan_json, Plan)
    before = plan
    _refuse_a_moved_project(batch, plan, experiment)
    plan = _as_of_now(batch, plan, experiment) if experiment is not None else _with_default_env_file(plan)
    if request.attempts is not None:
        plan = with_attempts(plan, request.attempts, str(batch.folder))
    if plan != before:
        write_json(batch.plan_json, plan)
    if experiment is not None:
        write_bytes(batch.experiment_toml, experiment.file.read_bytes())
    return plan


def _as_of_now(batch: Batch, plan: Plan, experiment: Experiment) -> Plan:
    """The plan with what the experiment adds to it, and with what it may change freely."""
    pinned_now = _with_pins(batch, plan, experiment)
    _refuse_changed_profiles(plan, pinned_now)
    labels = {task.ref.dataset: task.label for job in plan.jobs for task in job.tasks}
    selection = Selection(plan.selected_tasks, plan.selected_profiles)
    wanted = make_plan(pinned_now, batch, datetime.now(UTC), selection, labels)
    if experiment.file.read_bytes() != batch.experiment_toml.read_bytes():
        plan = _added(batch, plan, pinned_now, wanted)
    # A quarantine belongs to its file: a copy of the file releases nothing.
    own = plan.provenance.experiment_file in (None, experiment.file.name) or quarantine_file(experiment.file).exists()
    return refreshed(plan, wanted if own else msgspec.structs.replace(wanted, excluded=plan.excluded))


def _with_pins(batch: Batch, plan: Plan, experiment: Experiment) -> Experiment:
    """The experiment with the commits of the batch where its file pins none; profiles that are added share them."""
    planned = {job.profile for job in plan.jobs}
    selected = plan.selected_profiles or [profile.key for profile in experiment.profiles]
    added = [key for key in selected if key not in planned]
    known = batch_commits(batch, plan, experiment) if added else {}
    made = pinned(as_planned(experiment, plan), added, known)
    for profile in made.profiles:
        if profile.key in added and profile.mcp_git_source is not None and profile.mcp_git_ref is None:
            raise UserError(
                f'the newest commit of {profile.mcp_git_source} could not be found out, so profile "{profile.key}" was'
                " not added",
                where=str(experiment.file),
                hint="try again later, or set mcp_git_ref; tbench resume with the batch folder goes on without it",
            )
    return made


def _with_default_env_file(plan: Plan) -> Plan:
    """The plan with the default env file where none was recorded, if there is one now: a key may come late."""
    if not (_root(plan) / DEFAULT_ENV_FILE).is_file():
        return plan
    profiles = (msgspec.structs.replace(p, env_file=p.env_file or DEFAULT_ENV_FILE) for p in plan.profiles)
    return msgspec.structs.replace(plan, profiles=tuple(profiles))


def _refuse_a_moved_project(batch: Batch, plan: Plan, experiment: Experiment | None) -> None:
    """The recorded configurations name files by their full path: elsewhere they would read and write the old place."""
    if plan.provenance.root is None:
        raise UserError("does not say which project it was run from", where=str(batch.plan_json))
    recorded, place = _root(plan), Path(plan.folder)
    moved = (recorded / place).resolve() != batch.folder.resolve()
    if experiment is not None:  # two projects can share a folder of results
        moved = moved or experiment.root.resolve() != recorded.resolve()
    if moved:
        raise UserError(
            f"was started in {recorded}; its job configurations name files there",
            where=str(batch.folder),
            hint="move it back, or start a new batch: tbench run",
        )


def _refuse_changed_profiles(plan: Plan, experiment: Experiment) -> None:
    """A profile whose files changed is another treatment, even when the TOML is the same."""
    now = {profile.key: profile for profile in experiment.profiles}
    planned = {record.key: record for record in plan.profiles}
    for job in plan.jobs:
        profile = now.get(job.profile)
        if profile is not None and profile.id != job.profile_id:
            changes = differences(planned[job.profile].content, profile.content) if job.profile in planned else []
            listed = "".join(f"\n  {change.summary()}" for change in changes)
            raise UserError(
                f'profile "{job.profile}" is another treatment now: {job.profile_id} was planned, it is {profile.id}'
                f"{listed}",
                where=str(experiment.file),
                hint="start a new batch: tbench run",
            )


def refuse_changed_folders(batch: Batch, plan: Plan) -> None:
    """Skills and MCP code are read from their folders when a trial starts: they must be as they were planned."""
    first = {job.profile: job.name for job in plan.jobs}
    for profile in plan.profiles:
        agent = read_json(batch.job_config(first[profile.key]))["agents"][0]
        folders = {Path(path).name: path for path in agent.get("skills", [])}
        servers = agent.get("kwargs", {}).get("mcp_source", {}).get("paths", {})
        planned = {**(profile.content.get("skills") or {}), **(profile.content.get("mcp_code") or {})}
        for name, path in {**folders, **servers}.items():
            if planned.get(name) is not None and Folder(Path(path), every=name in folders).digest != planned[name]:
                raise UserError(
                    f'changed since batch {plan.batch} was planned; profile "{profile.key}" is another treatment now',
                    where=path,
                    hint="put it back, or start a new batch: tbench run",
                )


def _without_retried(batch: Batch, view: BatchView, retry_errors: str | None) -> BatchView:
    """The view in which the errors that are run again are superseded, recorded before they are.

    So is what was held back: its turn comes now, and the reason is one of the past.
    """
    retried = (cell.row for cell in _not_quarantined(view) if _is_retried(cell, retry_errors))
    again = [row.key for row in retried if row is not None]
    before = set(view.plan.superseded)
    again += [key for key in held_trials(batch.folder.parent.parent, view.batch) if key not in before]
    if not again:
        return view
    plan = msgspec.structs.replace(view.plan, superseded=(*view.plan.superseded, *again))
    write_json(batch.plan_json, plan)
    return msgspec.structs.replace(view, plan=plan)


def _added(batch: Batch, old: Plan, experiment: Experiment, wanted: Plan) -> Plan:
    prepared = prepare(experiment, wanted, os.environ)
    grown = msgspec.structs.replace(extended(old, prepared.plan, str(experiment.file)), excluded=())
    for job in grown.jobs:
        if not batch.job_config(job.name).exists():
            write_json(batch.job_config(job.name), job_config(experiment, prepared.profiles[job.profile], job, batch))
    return grown


def spent_so_far(view: BatchView, used_sec: float) -> Spent:
    """What the batch has cost: every trial counts that ran at all, superseded ones too."""
    costs: dict[str, list[float]] = {}
    unknown = 0
    free = free_profiles(view.plan)
    for row in view.rows():
        if row.usage.cost_usd is not None:
            costs.setdefault(row.profile or "", []).append(row.usage.cost_usd)
        elif row.state != ReadState.HELD and row.profile not in free:
            unknown += 1
    return Spent(costs, unknown, used_sec)


def _run(
    batch: Batch, view: BatchView, missing: dict[str, Counter[Cell]], request: ResumeRequest, listener: Listener
) -> RunResult:
    """Check what is missing as a run would, and run it. Nothing is recorded of what is refused."""
    plan = view.plan
    first = {job.profile: job for job in plan.jobs}
    templates = {profile: read_json(batch.job_config(first[profile].name)) for profile in missing}
    environments = {p: _environment(plan, p, templates[p]) for p in missing}
    wanted = {cell for cells in missing.values() for cell in cells}
    union = {p: _only(first[p], wanted) for p in missing}
    requests = [
        JobRequest(
            union[p].name,
            wave_config(templates[p], union[p], batch),
            environments[p],
            tuple(plan.settings.harbor_args),
            str(_env_file(plan, p) or _root(plan) / DEFAULT_ENV_FILE),
        )
        for p in missing
    ]
    records = ((p.key, p.content, planned_ref(templates[p.key])) for p in plan.profiles if p.key in templates)
    found = check_jobs([union[p] for p in missing], requests, plan.settings.container_env)
    left_out = (*known_problems(records), *found)
    if request.strict:
        refuse_left_out((*_held(view), *left_out), str(batch.folder))
    view = _without_retried(batch, view, request.retry_errors)
    _note(batch, plan, request, missing)
    spent = spent_so_far(view, request.used_sec)
    kept = filter(is_quarantined, plan.excluded)
    plan = msgspec.structs.replace(view.plan, excluded=(*kept, *left_out))
    write_json(batch.plan_json, plan)
    jobs = []
    for profile, cells in missing.items():
        open_cells = {
            (task.label, task.ref.id): cells[task.label, task.ref.id]
            for task in plan.runnable(first[profile]).tasks
            if cells[task.label, task.ref.id]
        }
        if open_cells:
            jobs.append(next_wave(first[profile], open_cells, _name(batch, first[profile])))
    return run_jobs(batch, plan, jobs, environments, listener, spent)


def _name(batch: Batch, job: JobSpec) -> str:
    """The job's own name while it has never run, else that of a further wave."""
    return free_wave_name(batch, job.name) if batch.job_folder(job.name).exists() else job.name


def _held(view: BatchView) -> list[Exclusion]:
    """The quarantined tasks that are not measured."""
    excluded = view.plan.exclusions()
    found = [excluded(cell.profile, cell.task) for cell in view.cells if not cell.measured]
    return list(dict.fromkeys(e for e in found if e is not None and is_quarantined(e)))


def _only(job: JobSpec, wanted: set[Cell]) -> JobSpec:
    return msgspec.structs.replace(job, tasks=tuple(t for t in job.tasks if (t.label, t.ref.id) in wanted), attempts=1)


def _root(plan: Plan) -> Path:
    """The project of a batch that `_refuse_a_moved_project` has accepted."""
    return Path(plan.provenance.root or "")


def _env_file(plan: Plan, profile: str) -> Path | None:
    name = next(p.env_file for p in plan.profiles if p.key == profile)
    return _root(plan) / name if name else None


def _environment(plan: Plan, profile: str, template: Mapping) -> dict[str, str]:
    record = next(p for p in plan.profiles if p.key == profile)
    root, env_file = _root(plan), _env_file(plan, profile)
    names = references(template["agents"])
    absent = [name for name in names if name not in os.environ]
    if env_file is not None and not env_file.is_file() and absent:
        raise UserError(
            f'the env file of profile "{profile}" is gone, and {", ".join(absent)} is not exported',
            where=str(env_file),
            hint="put it back; or name another in the experiment file, then: tbench resume EXPERIMENT.toml",
        )
    own_parts = any(is_import_path(name) for name in (record.content["agent"], plan.settings.container_env))
    place = root if own_parts else None
    return process_environment(names, env_file, place, os.environ)


def _note(batch: Batch, plan: Plan, request: ResumeRequest, missing: dict[str, Counter[Cell]]) -> None:
    resumed = {profile: cells.total() for profile, cells in missing.items()}
    detail = {"resumed": resumed, "attempts": request.attempts, "retry_errors": request.retry_errors}
    append_jsonl(batch.events_jsonl, Event.now(EventKind.RESUMED, plan.slug, detail=detail))
