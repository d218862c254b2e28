"""Going on with a batch: what is finished stays, the rest runs as further jobs of the same batch.

Reads plan.json and the recorded JobConfigs, not the TOML.
"""

import os
from collections import Counter
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.errors import TbenchError, UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.departures import Departure, DepartureKind
from terminalbench.experiments.envfile import secrets_of
from terminalbench.experiments.environments import own_variables
from terminalbench.experiments.experiment import Experiment
from terminalbench.experiments.plan import Exclusion, JobSpec, Plan
from terminalbench.experiments.planner import check_snapshots
from terminalbench.experiments.tables import DEFAULT_ENV_FILE
from terminalbench.harbor.jobs import wave_config, with_pins
from terminalbench.harbor.limits.accounts import KnownCost
from terminalbench.harbor.limits.control import ControlFile
from terminalbench.harbor.preflight import JobRequest
from terminalbench.index.places import plan_or_none
from terminalbench.index.queries import BatchView, CellState, Rerun, held_trials, view_batch
from terminalbench.index.scan import scan_batch
from terminalbench.json_files import append_jsonl, read_json, read_jsonl, write_json
from terminalbench.live.feed import untold_ends
from terminalbench.live.processes import forget_dead_workers, live_processes
from terminalbench.locks import LockHeld, lock
from terminalbench.records.event import Event, EventKind
from terminalbench.records.trial import Outcome, ReadState
from terminalbench.registry import is_import_path
from terminalbench.runner.changes import PlanDrift, accepted, find_changes, refuse, unrecorded_code, with_task_files
from terminalbench.runner.deaths import scrub_leftovers
from terminalbench.runner.environment import declared_variables, process_environment, stated_endpoints
from terminalbench.runner.growth import GrownPlan, grow, is_quarantined, root_of
from terminalbench.runner.images import (
    ImageBooks,
    build_notes,
    image_books,
    local_models,
    served,
    with_builds,
    with_images,
)
from terminalbench.runner.kill import await_ends, end_leftovers
from terminalbench.runner.preflight import (
    PreflightCheck,
    allow_open_files,
    check_jobs,
    known_problems,
    refuse_a_full_disk,
    refuse_left_out,
    with_remote_tasks,
)
from terminalbench.runner.provenance import planned_ref
from terminalbench.runner.run import (
    BatchSpend,
    Listener,
    RunResult,
    check_shared_gate,
    cluster,
    copy_artifacts,
    run_jobs,
)
from terminalbench.runner.waves import LOST, Cell, free_wave_name, lost_verdicts, next_wave, said, with_lost
from terminalbench.secrets.patterns import references
from terminalbench.text.names import fits, fits_one, is_task, typed, unknown
from terminalbench.text.numbers import some
from terminalbench.workflow.load import imports

ALL_ERRORS = "all"


@dataclass(frozen=True)
class ResumeRequest:
    """Wishes beyond finishing the plan: more attempts, and which errors to try again (`all`, or a class).

    `used_sec` of the deadline are used up already, by earlier rounds of the same command. `strict`: rather nothing than
    less than what is missing. `accept_changed`: with code, skills and tasks as they are now, as a departure.
    `profiles` and `tasks`: of these only, all others stay as they are; empty: of all.
    """

    attempts: int | None = None
    retry_errors: str | None = None
    used_sec: float = 0.0
    strict: bool = False
    accept_changed: bool = False
    profiles: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()

    def wants_cell(self, cell: CellState) -> bool:
        """Return whether a planned trial is to run, if it is missing."""
        task = cell.task
        return self.wants(cell.profile) and (
            not self.tasks or any(is_task(task.dataset, task.id, name) for name in self.tasks)
        )

    def wants(self, profile: str) -> bool:
        """Return whether anything of a profile is to run."""
        return not self.profiles or fits_one(profile, self.profiles)

    @property
    def first_round(self) -> bool:
        """Return whether this begins a command; orders given to a live run hold for all its rounds."""
        return self.used_sec == 0.0


def resume(
    batch: Batch, request: ResumeRequest, experiment: Experiment | None = None, listener: Listener | None = None
) -> RunResult:
    """Finish a batch; with an experiment, first add what the file has gained. Nothing missing: nothing happens."""
    refuse_a_full_disk(batch.folder)
    if (before := plan_or_none(batch)) is not None:
        if before.imported is not None:
            what = f"holds results imported from {before.imported.source}, which cannot be run"
            raise UserError(what, where=str(batch.folder), hint=f"tbench compare {typed(batch.folder)} reads them")
        allow_open_files(max((before.at_once(profile.key) for profile in before.profiles), default=1))
    listener = listener or Listener()
    with _only_here(batch):
        if any(process.kind == "harbor" for process in live_processes(batch)):
            _end_leftovers(batch)
        await_ends(batch, listener.note)
        forget_dead_workers(batch)
        if request.first_round:
            ControlFile(batch.control_json).clear()
        secrets = secrets_of(plan_or_none(batch))  # what earlier trials may hold, before the file names other env files
        grown = grow(batch, request.attempts, experiment, listener.preparing)
        plan = grown.plan
        _refuse_unknown_names(batch, plan, request)
        secrets |= secrets_of(plan)
        scanned = scan_batch(batch, secrets=secrets)
        view = view_batch(batch, plan=plan)
        _tell_untold_ends(batch, view)
        wanted = msgspec.structs.replace(view, cells=[cell for cell in view.cells if request.wants_cell(cell)])
        missing = missing_cells(wanted, request.retry_errors)
        if request.retry_errors == ALL_ERRORS and (left := _by_name_only(view)):
            listener.note(left)
        check_snapshots(batch, grown.before, missing)
        changes = _changes(batch, grown, missing, listener) if missing else PlanDrift()
        if not request.accept_changed:
            refuse(changes, plan, str(batch.folder))
        grown.write(batch)
        if not missing:
            scrub_leftovers(batch, secrets)
            problems = (*(f"unreadable: {problem}" for problem in scanned.unreadable), *copy_artifacts(batch, plan))
            as_indexed = not (scanned.read or scanned.removed)
            return RunResult(batch, view.plan, False, problems, view, as_indexed=as_indexed)
        if request.first_round:
            spent = spent_so_far(view, request.used_sec)
            for text in check_shared_gate(plan, missing, batch.results_root, spent, str(batch.folder)):
                listener.note(text)
        _end_leftovers(batch)
        scrub_leftovers(batch, secrets)  # only now: a container that was left behind would go on writing
        lost = lost_verdicts(batch, view, missing)
        if lost:
            listener.note(f"{said(lost)}; compare reports this as a departure")
        view = msgspec.structs.replace(view, plan=with_lost(accepted(plan, changes), lost))
        with cluster(plan.settings, map(plan.own_parallel, missing)):
            return _run(batch, view, missing, request, listener, lost)


@contextmanager
def _only_here(batch: Batch) -> Generator[None]:
    """Hold the batch; when another process does, say which, and what can be done about it."""
    name = f"{batch.folder.parent.name}/{batch.folder.name}"
    try:
        with lock(batch.lock, f"tbench resume {name}"):
            yield
    except LockHeld as error:
        error.where = str(batch.folder)
        error.hint = f"tbench watch {typed(batch.folder)} shows it, tbench kill {typed(batch.folder)} ends it"
        raise


def _refuse_unknown_names(batch: Batch, plan: Plan, request: ResumeRequest) -> None:
    known = [profile.key for profile in plan.profiles]
    for name in request.profiles:
        if not any(fits(key, name) for key in known):
            raise unknown("profile of the batch", name, known, str(batch.folder))
    tasks = list(dict.fromkeys(task.ref for job in plan.jobs for task in job.tasks)) if request.tasks else []
    for name in request.tasks:
        if not any(is_task(task.dataset, task.id, name) for task in tasks):
            raise unknown("task of the batch", name, [task.id for task in tasks], str(batch.folder))


def _tell_untold_ends(batch: Batch, view: BatchView) -> None:
    """Complete events.jsonl: a process that is killed between a trial's result and its event leaves the end untold."""
    for event in untold_ends(view.rows(), read_jsonl(batch.events_jsonl, Event).records):
        append_jsonl(batch.events_jsonl, event)


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
    """Return what is still to run, by profile: never ran, cut off, unreadable, and errors if asked for."""
    labels = {(job.profile, task.ref): task.label for job in view.plan.jobs for task in job.tasks}
    found: dict[str, Counter[Cell]] = {}
    for cell in _not_quarantined(view):
        if cell.rerun is Rerun.RESUME or _is_retried(cell, retry_errors):
            found.setdefault(cell.profile, Counter())[labels[cell.profile, cell.task], cell.task.id] += 1
    return found


def _not_quarantined(view: BatchView) -> list[CellState]:
    excluded = view.plan.exclusions()
    return [cell for cell in view.cells if not is_quarantined(excluded(cell.profile, cell.task))]


def _by_name_only(view: BatchView) -> str | None:
    """Return what is not run again though it has an error, as its profile is at fault; None when nothing is."""
    trials = [cell.row.trial for cell in view.cells if cell.row is not None and cell.outcome is not Outcome.PASSED]
    kinds = Counter(t.error_class for t in trials if t and t.error_class and t.error_class.of_profile)
    if not kinds:
        return None
    listed = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
    again = f"--retry-errors {kinds.most_common(1)[0][0]}"
    return f"errors that a profile causes ({listed}) are run again only by name: {again}"


def _is_retried(cell: CellState, retry_errors: str | None) -> bool:
    """Return whether a trial is run again: all errors are those of the bench, what a profile does has to be named."""
    trial = cell.row.trial if cell.row is not None else None
    if retry_errors is None or trial is None or trial.outcome is Outcome.PASSED:
        return False
    if retry_errors == ALL_ERRORS:
        return cell.rerun is Rerun.RETRY
    return trial.error_class == retry_errors


def _changes(batch: Batch, grown: GrownPlan, missing: Mapping[str, Counter[Cell]], listener: Listener) -> PlanDrift:
    """Return what is not as it was planned of what is to run; a plan that cannot tell is said."""
    planned = [job.profile for job in grown.before.jobs if job.profile in missing]
    for profile in unrecorded_code(batch, grown.plan, planned):
        told = (
            "an earlier version planned this batch without recording the code of its agent, so changes of that code"
            " cannot be detected"
        )
        listener.note(f'profile "{profile}": {told}')
    first = {job.profile: job.name for job in reversed(grown.plan.jobs)}
    environments = {p: _environment(grown.plan, p, read_json(batch.job_config(first[p]))) for p in planned}
    return find_changes(batch, grown.plan, environments, {cell for cells in missing.values() for cell in cells})


def _without_retried(batch: Batch, view: BatchView, request: ResumeRequest) -> BatchView:
    """The view in which the errors that are run again are superseded, recorded before they are.

    So is what was held back: its turn comes now, and the reason is one of the past.
    """
    cells = [cell for cell in _not_quarantined(view) if request.wants_cell(cell)]
    retried = (cell.row for cell in cells if _is_retried(cell, request.retry_errors))
    again = [row.key for row in retried if row is not None]
    others = (cell.row.key for cell in view.cells if cell.row is not None and not request.wants_cell(cell))
    before = {*view.plan.superseded, *others}
    before |= {row.key for row in view.rows() if not request.wants(row.profile or "")}
    again += [key for key in held_trials(batch.folder.parent.parent, view.batch) if key not in before]
    if not again:
        return view
    plan = msgspec.structs.replace(view.plan, superseded=(*view.plan.superseded, *again))
    write_json(batch.plan_json, plan)
    return msgspec.structs.replace(view, plan=plan)


def spent_so_far(view: BatchView, used_sec: float) -> BatchSpend:
    """Return what the batch has cost: every trial counts that ran at all, superseded ones too."""
    known: dict[str, KnownCost] = {}
    unknown: Counter[str] = Counter()
    for row in view.rows():
        profile, cost_usd = row.profile or "", row.usage.cost_usd
        if cost_usd is not None:
            measured = row.trial is not None and row.trial.outcome.measured
            known[profile] = known.get(profile, KnownCost()).and_one(cost_usd, measured=measured)
        elif row.state != ReadState.HELD:
            unknown[profile] += 1
    return BatchSpend(known, dict(unknown), used_sec)


def _run(
    batch: Batch,
    view: BatchView,
    missing: dict[str, Counter[Cell]],
    request: ResumeRequest,
    listener: Listener,
    lost: Collection[str],
) -> RunResult:
    """Check what is missing as a run would, and run it. Nothing is recorded of what is refused."""
    plan, notes = with_remote_tasks(view.plan, os.environ, listener.preparing)
    first = {job.profile: job for job in plan.jobs}
    templates = {profile: read_json(batch.job_config(first[profile].name)) for profile in missing}
    environments = {p: _environment(plan, p, templates[p]) for p in missing}
    wanted = {cell for cells in missing.values() for cell in cells}
    union = {p: _only(first[p], wanted) for p in missing}
    tasks = {task.ref: task for job in union.values() for task in job.tasks}
    books = image_books(plan, tasks.values(), root_of(plan), os.environ, listener.preparing)
    plan = with_images(plan, books)
    asked = [_without(union[p], books.exclusions()) for p in missing]
    asked = [job for job in asked if job.tasks]
    requests = [
        JobRequest(
            job.name,
            with_pins(wave_config(templates[job.profile], job, batch), plan.images),
            environments[job.profile],
            tuple(plan.settings.harbor_args),
            str(_env_file(plan, job.profile) or root_of(plan) / DEFAULT_ENV_FILE),
            declared_variables(references(templates[job.profile]["agents"]), _env_file(plan, job.profile)),
        )
        for job in asked
    ]
    records = ((p.key, p.content, planned_ref(templates[p.key])) for p in plan.profiles if p.key in templates)
    found = check_jobs(asked, requests, plan.settings.container_env) if asked else PreflightCheck(())
    for text in (*notes, *found.notes, *books.notes()) if request.first_round else ():
        listener.note(text)
    left_out = (*books.exclusions(), *known_problems(records), *found.excluded)
    if request.strict:
        refuse_left_out((*_held(view), *left_out), str(batch.folder))
    plan, unlike = with_builds(plan, tasks.values(), books, root_of(plan), os.environ, listener.preparing)
    for text in build_notes(plan):
        listener.note(text)
    changes = PlanDrift(departures=(*_other_bases(view, books), *unlike))
    if not request.accept_changed:
        refuse(changes, plan, str(batch.folder))
    view = msgspec.structs.replace(view, plan=accepted(plan, changes))
    view = _without_retried(batch, view, request)
    _note(batch, view.plan, request, missing, lost)
    spent = spent_so_far(view, request.used_sec)
    kept = (e for e in plan.excluded if is_quarantined(e) or (e.profile is not None and not request.wants(e.profile)))
    plan = with_task_files(msgspec.structs.replace(view.plan, excluded=(*kept, *left_out)))
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
    with served(local_models(templates[job.profile] for job in jobs), listener.note):
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


def _without(job: JobSpec, excluded: Collection[Exclusion]) -> JobSpec:
    gone = {exclusion.task for exclusion in excluded}
    return msgspec.structs.replace(job, tasks=tuple(task for task in job.tasks if task.ref not in gone))


def _other_bases(view: BatchView, books: ImageBooks) -> list[Departure]:
    """Tasks that run on images, in a batch of an earlier version that ran them on this machine's own system."""
    ran = {cell.task for cell in view.cells if cell.row is not None} if view.plan.images is None else set()
    other = [ref.id for ref, need in books.needs.items() if need.images and ref in ran]
    text = f"these tasks now run on their own images, but ran on this machine's system before: {some(other)}"
    return [Departure(DepartureKind.CHANGED_BASES, text)] if other else []


def _env_file(plan: Plan, profile: str) -> Path | None:
    name = next(p.env_file for p in plan.profiles if p.key == profile)
    return root_of(plan) / name if name else None


def _environment(plan: Plan, profile: str, template: Mapping) -> dict[str, str]:
    record = next(p for p in plan.profiles if p.key == profile)
    root, env_file = root_of(plan), _env_file(plan, profile)
    names = references(template["agents"])
    absent = [name for name in names if name not in os.environ]
    if env_file is not None and not env_file.is_file() and absent:
        raise UserError(
            f'the env file of profile "{profile}" is missing, and {", ".join(absent)} is not exported',
            where=str(env_file),
            hint="restore it, or name another in the experiment file and run: tbench resume EXPERIMENT.toml",
        )
    own_parts = any(is_import_path(name) for name in (record.content["agent"], plan.settings.container_env))
    own_parts = own_parts or bool(imports(record.content.get("workflow") or {}))
    place = root if own_parts else None
    names += own_variables(plan.settings.container_env, os.environ)
    stated = stated_endpoints(record.content.get("env") or {})
    return process_environment(names, env_file, place, os.environ) | stated


def _note(
    batch: Batch, plan: Plan, request: ResumeRequest, missing: dict[str, Counter[Cell]], lost: Collection[str]
) -> None:
    resumed = {profile: cells.total() for profile, cells in missing.items()}
    detail: dict[str, Any] = {"resumed": resumed, "attempts": request.attempts, "retry_errors": request.retry_errors}
    if request.accept_changed:
        detail["departures"] = [str(departure) for departure in plan.departed()]
    if lost:
        detail[LOST] = list(lost)
    append_jsonl(batch.events_jsonl, Event.now(EventKind.RESUMED, plan.slug, detail=detail))
