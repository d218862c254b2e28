"""A batch may only grow: more attempts, tasks, profiles. What measures anything else is another experiment.

The table and texts of a profile are recorded in its JobConfig: a file that says something else is another treatment.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.departures import Departure, DepartureKind, GrownFrom
from terminalbench.experiments.experiment import Experiment, select_profiles
from terminalbench.experiments.plan import Exclusion, ExclusionKind, JobSpec, Plan, PlannedTask, ProfileRecord
from terminalbench.experiments.planner import Selection, plan_with_lessons, write_snapshot
from terminalbench.experiments.profile_changes import tells
from terminalbench.experiments.profiles import Profile
from terminalbench.experiments.quarantine import quarantine_file
from terminalbench.experiments.tables import DEFAULT_ENV_FILE, RunTable
from terminalbench.files import write_bytes
from terminalbench.harbor.jobs import job_config
from terminalbench.json_files import read_json, write_json
from terminalbench.records.trial import TaskRef
from terminalbench.runner.preflight import prepare
from terminalbench.runner.provenance import as_planned, batch_commits, pinned
from terminalbench.text.numbers import plural

FREE_TO_CHANGE = {
    "parallel",
    "profiles_parallel",
    "retries",
    "budget_usd",
    "run_timeout_sec",
    "attempts",
    "results_root",
    "executor",
    "ray",
}
"""Settings that decide how a batch runs, not what it measures."""

_NO_TREATMENT = ("env_file", "price", "likely_cost_usd", "parallel")


def is_quarantined(exclusion: Exclusion | None) -> bool:
    """Return whether a person has left this out, in the experiment's quarantine."""
    return exclusion is not None and exclusion.kind is ExclusionKind.QUARANTINED


def refreshed(plan: Plan, now: Plan) -> Plan:
    """The plan with what decides no treatment as the file and its quarantine say it `now`.

    These are the paths of env files, declared costs, whom to notify, what to copy, and which tasks are left out.
    """
    now_of = {profile.key: profile for profile in now.profiles}
    tasks = {task.ref for job in plan.jobs for task in job.tasks}
    return msgspec.structs.replace(
        plan,
        profiles=tuple(
            msgspec.structs.replace(record, **{name: getattr(now_of[record.key], name) for name in _NO_TREATMENT})
            if record.key in now_of
            else record
            for record in plan.profiles
        ),
        notify=now.notify,
        artifacts=now.artifacts,
        excluded=(
            *(exclusion for exclusion in now.excluded if is_quarantined(exclusion) and exclusion.task in tasks),
            *(exclusion for exclusion in plan.excluded if not is_quarantined(exclusion)),
        ),
    )


def extended(old: Plan, new: Plan, where: str) -> Plan:
    """`old` with everything that `new` adds. Raises when `new` changes or drops anything."""
    problems = [*_changed_rules(old, new), *_changed_jobs(old, new)]
    if problems:
        listed = "\n  ".join(problems)
        raise UserError(
            f"changes batch {old.batch} instead of only adding to it:\n  {listed}",
            where=where,
            hint="start a new batch: tbench run",
        )
    kept = {job.profile: job for job in old.jobs}
    stamp = "__".join(old.jobs[0].name.split("__", 2)[:2]) if old.jobs else ""
    refs = {task.ref: task.ref for job in old.jobs for task in job.tasks}
    jobs = tuple(
        _grown(kept[job.profile], job) if job.profile in kept else _added(job, stamp, refs) for job in new.jobs
    )
    late = (
        [Departure(DepartureKind.TOP_UP, "the rule was declared after the batch had started")]
        if new.top_up and not old.top_up
        else []
    )
    known = {profile.key for profile in old.profiles}
    added = tuple(profile for profile in new.profiles if profile.key not in known)
    late += _other_conditions(old.profiles, added)
    return msgspec.structs.replace(
        old,
        jobs=jobs,
        profiles=(*old.profiles, *added),
        grown_from=_grown_from(old, max((job.attempts for job in jobs), default=0), _added_tasks(old, jobs)),
        settings=dataclasses.replace(old.settings, **{name: getattr(new.settings, name) for name in FREE_TO_CHANGE}),
        top_up=new.top_up,
        departures=(*old.departures, *late),
        notes=new.notes,
    )


def _other_conditions(planned: Sequence[ProfileRecord], added: Sequence[ProfileRecord]) -> list[Departure]:
    """Profiles that run under built-in conditions which others of the same agent were planned without, long ago."""
    without = {record.content.get("agent"): record.key for record in planned if not tells(record.recipe, "conditions")}
    found = [(record, without.get(record.content.get("agent"))) for record in added if record.content.get("conditions")]
    return [
        Departure(
            DepartureKind.PROFILES, f"{record.key} has {', '.join(record.content['conditions'])}, but {other} does not"
        )
        for record, other in found
        if other is not None
    ]


def with_attempts(plan: Plan, attempts: int, where: str) -> Plan:
    """The plan with more attempts of everything."""
    most = max(job.attempts for job in plan.jobs)
    if attempts < most:
        raise UserError(
            f"batch {plan.batch} already has {plural(most, 'attempt')}; --attempts can only raise this number",
            where=where,
        )
    jobs = tuple(_with_attempts(job, job.tasks, attempts) for job in plan.jobs)
    settings = dataclasses.replace(plan.settings, attempts=attempts)
    return msgspec.structs.replace(plan, jobs=jobs, settings=settings, grown_from=_grown_from(plan, attempts))


def _grown_from(plan: Plan, attempts: int, added: tuple[str, ...] = ()) -> tuple[GrownFrom | int, ...]:
    """Return what it had each time, with what it has now if that becomes more."""
    most = max((job.attempts for job in plan.jobs), default=attempts)
    if added:
        return (*plan.grown_from, GrownFrom(most, added))
    return (*plan.grown_from, most) if attempts > most else plan.grown_from


def _added_tasks(old: Plan, jobs: Sequence[JobSpec]) -> tuple[str, ...]:
    known = {task.ref for job in old.jobs for task in job.tasks}
    added = dict.fromkeys(task.ref for job in jobs for task in job.tasks if task.ref not in known)
    return tuple(ref.name for ref in added)


def changed_settings(old: RunTable, new: RunTable) -> list[str]:
    """The settings of a run that are not as they were and decide what it measures."""
    was, now = dataclasses.asdict(old), dataclasses.asdict(new)
    names = [name for name in now if name not in FREE_TO_CHANGE and now[name] != was[name]]
    return [f"run.{name}: was {was[name]!r}, is {now[name]!r}" for name in names]


def _changed_rules(old: Plan, new: Plan) -> list[str]:
    problems = changed_settings(old.settings, new.settings)
    if old.top_up is not None and new.top_up != old.top_up:
        problems.append("top_up: the rule may not change once attempts depend on it")
    return problems


def _changed_jobs(old: Plan, new: Plan) -> list[str]:
    after = {job.profile: job for job in new.jobs}
    problems = []
    for job in old.jobs:
        now = after.get(job.profile)
        if now is None:
            problems.append(f"profiles.{job.profile}: is missing")
            continue
        was, is_now = old.record(job.profile), new.record(job.profile)
        known = was is not None and is_now is not None
        changed = [d for d in was.changes(is_now.content) if not d.on_disk] if known else []
        if changed or (not known and now.profile_id != job.profile_id):
            ids = f"{job.profile_id} was planned, {now.profile_id} is in the file"
            problems.append(f"profiles.{job.profile}: has changed ({ids})")
        refs = {t.ref for t in now.tasks}
        gone = [t.ref.id for t in job.tasks if t.ref not in refs]
        if gone:
            problems.append(f"tasks.items: {', '.join(gone)} removed")
        if now.attempts < job.attempts:
            problems.append(
                f"run.attempts: {job.attempts} in the batch, {now.attempts} in the file; attempts can only be raised"
            )
    return list(dict.fromkeys(problems))


def _grown(old: JobSpec, new: JobSpec) -> JobSpec:
    """The old job with the new one's order, tasks and attempts; the place of a known task stays as it was."""
    known = {t.ref: t for t in old.tasks}
    tasks = tuple(known.get(t.ref, t) for t in new.tasks)
    return _with_attempts(old, tasks, new.attempts)


def _with_attempts(job: JobSpec, tasks: tuple[PlannedTask, ...], attempts: int) -> JobSpec:
    """The job with these attempts of each task; what a top-up had already added beyond them stays."""
    kept = tuple(msgspec.structs.replace(t, extra=max(0, job.attempts_of(t) - attempts)) for t in tasks)
    return msgspec.structs.replace(job, tasks=kept, attempts=attempts)


def _added(job: JobSpec, stamp: str, known: Mapping[TaskRef, TaskRef]) -> JobSpec:
    """A job of a new profile, named like the others of the batch; a task keeps the family it was planned with."""
    tasks = tuple(msgspec.structs.replace(t, ref=known.get(t.ref, t.ref)) for t in job.tasks)
    return msgspec.structs.replace(job, name=f"{stamp}__{job.profile}" if stamp else job.name, tasks=tasks)


@dataclass(frozen=True)
class GrownPlan:
    """A batch's plan with what was added to it, added profiles with their JobConfigs, and the file that has them."""

    before: Plan
    plan: Plan
    configs: dict[str, dict[str, Any]] = field(default_factory=dict)
    file: Path | None = None
    profiles: tuple[Profile, ...] = ()

    def write(self, batch: Batch) -> None:
        """Record it, before anything runs."""
        for profile in self.profiles:
            write_snapshot(batch, profile)
        for name, config in self.configs.items():
            write_json(batch.job_config(name), config)
        if self.plan != self.before:
            write_json(batch.plan_json, self.plan)
        if self.file is not None:
            write_bytes(batch.experiment_toml, self.file.read_bytes())


def grow(
    batch: Batch,
    attempts: int | None,
    experiment: Experiment | None,
    tell: Callable[[str], None] = lambda _text: None,
) -> GrownPlan:
    """Return what a batch becomes by its experiment file as it is now, and by more attempts; nothing is written yet."""
    before: Plan = read_json(batch.plan_json, Plan)
    _refuse_a_moved_project(batch, before, experiment)
    grown = GrownPlan(before, _with_default_env_file(before))
    if experiment is not None:
        grown = _as_of_now(batch, before, experiment, tell)
    if attempts is not None:
        grown = replace(grown, plan=with_attempts(grown.plan, attempts, str(batch.folder)))
    return grown


def _as_of_now(batch: Batch, plan: Plan, experiment: Experiment, tell: Callable[[str], None]) -> GrownPlan:
    """The plan with what the experiment adds to it, and with what it may change freely."""
    before, configs = plan, {}
    labels = {task.ref.dataset: task.label for job in plan.jobs for task in job.tasks}
    attempts = plan.selected_attempts
    if attempts is not None:
        attempts = max(attempts, experiment.run.attempts)
    selection = Selection(plan.selected_tasks, plan.selected_profiles, attempts=attempts)
    pinned_now = _with_pins(batch, plan, experiment)
    pinned_now, wanted = plan_with_lessons(pinned_now, batch, datetime.now(UTC), selection, labels, plan)
    _refuse_changed_profiles(plan, pinned_now)
    added: tuple[Profile, ...] = ()
    if experiment.file.read_bytes() != batch.experiment_toml.read_bytes():
        plan, configs = _with_additions(batch, plan, pinned_now, wanted, tell)
        known = {job.profile for job in before.jobs}
        added = tuple(profile for profile in pinned_now.profiles if profile.key not in known)
    # A quarantine belongs to its file: a copy of the file releases nothing.
    own = plan.provenance.experiment_file in (None, experiment.file.name) or quarantine_file(experiment.file).exists()
    plan = refreshed(plan, wanted if own else msgspec.structs.replace(wanted, excluded=plan.excluded))
    return GrownPlan(before, plan, configs, experiment.file, added)


def _with_pins(batch: Batch, plan: Plan, experiment: Experiment) -> Experiment:
    """The experiment with the commits of the batch where its file pins none; profiles that are added share them."""
    planned = {job.profile for job in plan.jobs}
    selected = select_profiles(experiment, plan.selected_profiles)
    added = [profile.key for profile in selected if profile.key not in planned]
    known = batch_commits(batch, plan, experiment) if added else {}
    made = pinned(as_planned(experiment, plan), added, known)
    for profile in made.profiles:
        if profile.key in added and profile.mcp_git_source is not None and profile.mcp_git_ref is None:
            raise UserError(
                f'profile "{profile.key}" was not added, because the newest commit of'
                f" {profile.mcp_git_source} could not be read from git",
                where=str(experiment.file),
                hint="try again later, or set mcp_git_ref; tbench resume with the batch folder continues without "
                "this profile",
            )
    return made


def _with_default_env_file(plan: Plan) -> Plan:
    """The plan with the default env file where none was recorded, if there is one now: a key may come late."""
    if not (root_of(plan) / DEFAULT_ENV_FILE).is_file():
        return plan
    profiles = (msgspec.structs.replace(p, env_file=p.env_file or DEFAULT_ENV_FILE) for p in plan.profiles)
    return msgspec.structs.replace(plan, profiles=tuple(profiles))


def _refuse_a_moved_project(batch: Batch, plan: Plan, experiment: Experiment | None) -> None:
    """The recorded configurations name files by their full path: elsewhere they would read and write the old place."""
    if plan.provenance.root is None:
        raise UserError("does not say which project it was run from", where=str(batch.plan_json))
    recorded, told = root_of(plan), None
    if plan.place().resolve() != batch.folder.resolve():
        told = f"was planned for the folder {plan.place()}"
    elif experiment is not None and experiment.root.resolve() != recorded.resolve():
        told = f"was started in {recorded}, not in {experiment.root}"  # two projects can share a folder of results
    if told is not None:
        raise UserError(
            f"{told}; its job configurations refer to files there",
            where=str(batch.folder),
            hint="move the folder back, or start a new batch: tbench run",
        )


def _refuse_changed_profiles(plan: Plan, experiment: Experiment) -> None:
    """A profile whose table or texts changed is another treatment; files that trials read are looked at later."""
    now = {profile.key: profile for profile in experiment.profiles}
    for job in plan.jobs:
        profile, planned = now.get(job.profile), plan.record(job.profile)
        changes = [c for c in planned.changes(profile.content) if not c.on_disk] if planned and profile else []
        if profile is not None and (changes or (planned is None and profile.id != job.profile_id)):
            listed = "".join(f"\n  {change.summary()}" for change in changes)
            raise UserError(
                f'profile "{job.profile}" has changed: {job.profile_id} was planned, now it is {profile.id}{listed}',
                where=str(experiment.file),
                hint="start a new batch (tbench run), or finish this batch as planned by naming its folder",
            )


def _with_additions(
    batch: Batch, old: Plan, experiment: Experiment, wanted: Plan, tell: Callable[[str], None]
) -> tuple[Plan, dict[str, dict[str, Any]]]:
    prepared = prepare(experiment, msgspec.structs.replace(wanted, images=old.images), os.environ, tell, build=False)
    grown = extended(old, prepared.plan, str(experiment.file))
    grown = msgspec.structs.replace(grown, excluded=(), images=prepared.plan.images)
    added = [job for job in grown.jobs if not batch.job_config(job.name).exists()]
    return grown, {
        job.name: job_config(experiment, prepared.profiles[job.profile], job, batch, grown.images) for job in added
    }


def root_of(plan: Plan) -> Path:
    """The project of a batch that `grow` has accepted."""
    return Path(plan.provenance.root or "")
