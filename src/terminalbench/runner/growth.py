"""A batch may only grow: more attempts, tasks, profiles. What measures anything else is another experiment. Pure."""

import dataclasses
from collections.abc import Mapping, Sequence

import msgspec

from terminalbench.errors import UserError
from terminalbench.experiments.departures import Departure, DepartureKind, GrownFrom
from terminalbench.experiments.plan import Exclusion, ExclusionKind, JobSpec, Plan, PlannedTask, ProfileRecord
from terminalbench.experiments.profile_changes import tells
from terminalbench.experiments.tables import RunTable
from terminalbench.records.trial import TaskRef
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
    return tuple(f"{ref.dataset}/{ref.id}" for ref in added)


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
