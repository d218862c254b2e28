"""From an experiment to its plan, pure: no clock, no network, nothing written; and planning with a memory.

The plan of an experiment whose profiles get lessons holds what memory has for its tasks. Where a memory is kept and how
it is searched is not known here: the registry has it (`memories`), as a function of the project, the policy of a
profile, the planned tasks, who is to read, all tasks that the experiment knows, and a seed.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from terminalbench import registry
from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.datasets import dataset_labels
from terminalbench.experiments.experiment import Experiment, select_profiles, select_tasks
from terminalbench.experiments.lessons import LessonReader, Snapshot, read_snapshot, task_key
from terminalbench.experiments.plan import (
    BatchDeclaration,
    Exclusion,
    ExclusionKind,
    JobSpec,
    Plan,
    PlannedTask,
    ProfileRecord,
)
from terminalbench.experiments.profiles import RECIPE, SNAPSHOT, Profile
from terminalbench.experiments.project import from_root
from terminalbench.experiments.tables import MOST_ATTEMPTS, SLUG, SLUG_DOC
from terminalbench.json_files import write_json
from terminalbench.records.trial import TaskRef
from terminalbench.text.numbers import plural


@dataclass(frozen=True)
class Selection:
    """The tasks and profiles of an experiment to plan (empty means all), and labels besides those of its file.

    `attempts` are instead of those of the file.
    """

    tasks: Sequence[str] = ()
    profiles: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    attempts: int | None = None

    def __post_init__(self) -> None:
        if self.attempts is not None and not 1 <= self.attempts <= MOST_ATTEMPTS:
            raise UserError(f"attempts must be from 1 to {MOST_ATTEMPTS}, not {self.attempts}")
        for name, value in self.labels.items():
            if not (isinstance(name, str) and re.fullmatch(SLUG, name) and isinstance(value, str)):
                raise UserError(f"label {name!r}: the name must be of {SLUG_DOC}, the value a text, not {value!r}")


def make_plan(
    experiment: Experiment,
    batch: Batch,
    now: datetime,
    selection: Selection | None = None,
    known_labels: Mapping[str, str] | None = None,
) -> Plan:
    """The plan of `experiment` into `batch`; `now` stamps the job names.

    `known_labels` are labels that datasets have already, in a batch that grows.
    """
    selection = selection or Selection()
    tasks = select_tasks(experiment, selection.tasks)
    profiles = select_profiles(experiment, selection.profiles)
    labels = dataset_labels(experiment.datasets, known_labels or {})
    stamp = now.strftime("%Y-%m-%d__%H-%M-%S")
    planned = tuple(
        PlannedTask(
            TaskRef(t.id, t.dataset, t.family),
            labels[t.dataset],
            t.source.config,
            t.source.found,
            timeout_sec=t.timeout_sec,
        )
        for t in tasks
    )
    run = experiment.run
    if selection.attempts is not None:
        run = replace(run, attempts=selection.attempts)
    jobs = tuple(JobSpec(f"{stamp}__{p.key}", p.key, p.id, run.attempts, planned) for p in profiles)
    baseline = experiment.baseline if experiment.baseline in profiles else profiles[0]
    return Plan(
        slug=experiment.slug,
        name=experiment.name,
        batch=batch.number,
        folder=from_root(batch.folder, experiment.root),
        baseline=baseline.key,
        jobs=jobs,
        profiles=tuple(_profile_record(profile, experiment.root) for profile in profiles),
        settings=run,
        analysis=experiment.analysis,
        top_up=experiment.top_up,
        notify=experiment.notify,
        declared=BatchDeclaration(
            tasks=tuple(task.name for task in tasks),
            profiles=tuple(profile.key for profile in profiles),
            attempts=run.attempts,
        ),
        labels={**experiment.labels, **selection.labels},
        artifacts=tuple(experiment.artifacts.targets),
        selected_tasks=tuple(selection.tasks),
        selected_profiles=tuple(selection.profiles),
        selected_attempts=selection.attempts,
        excluded=_quarantined(experiment, planned),
        notes=experiment.notes,
    )


def _quarantined(experiment: Experiment, tasks: tuple[PlannedTask, ...]) -> tuple[Exclusion, ...]:
    return tuple(
        Exclusion(f"quarantined: {reason}", task=task.ref, kind=ExclusionKind.QUARANTINED)
        for task in tasks
        if (reason := experiment.quarantine.get((task.ref.dataset, task.ref.id))) is not None
    )


def _profile_record(profile: Profile, root: Path) -> ProfileRecord:
    env_file = from_root(profile.env_file, root) if profile.env_file else None
    told = (profile.description, env_file, profile.price, RECIPE)
    return ProfileRecord(
        profile.key, profile.id, profile.content, *told, likely_cost_usd=profile.likely_cost_usd,
        parallel=profile.parallel,
    )  # fmt: skip


MEMORY = "archivist"


class PlannedWith(NamedTuple):
    """An experiment whose profiles have their lessons, and its plan."""

    experiment: Experiment
    plan: Plan


def plan_with_lessons(
    experiment: Experiment,
    batch: Batch,
    now: datetime,
    selection: Selection | None = None,
    known_labels: Mapping[str, str] | None = None,
    before: Plan | None = None,
) -> PlannedWith:
    """The plan, as `make_plan` makes it. Profiles that are in the plan `before` of the batch keep its lessons."""
    plan = make_plan(experiment, batch, now, selection, known_labels)
    jobs = {job.profile: job for job in plan.jobs}
    profiles = tuple(
        replace(one, snapshot=_snapshot(experiment, one, jobs[one.key], batch, before))
        if one.lessons is not None and one.key in jobs
        else one
        for one in experiment.profiles
    )
    if profiles == experiment.profiles:
        return PlannedWith(experiment, plan)
    experiment = replace(experiment, profiles=profiles)
    return PlannedWith(experiment, make_plan(experiment, batch, now, selection, known_labels))


def recorded_digest(record: ProfileRecord | None) -> str | None:
    """The digest of the lessons that a profile was planned with; None: it gets none."""
    lessons = record.content.get("lessons") if record is not None else None
    return lessons.get(SNAPSHOT) if isinstance(lessons, dict) else None


def write_snapshot(batch: Batch, profile: Profile) -> None:
    """Put the lessons of a profile into the folder of its batch, before the first trial."""
    if profile.snapshot is not None:
        write_json(batch.lessons(profile.key), profile.snapshot)


def check_snapshots(batch: Batch, plan: Plan, profiles: Iterable[str]) -> None:
    """Refuse to go on with these profiles where the lessons of one are gone or changed."""
    for profile in profiles:
        if (digest := recorded_digest(plan.record(profile))) is not None:
            read_snapshot(batch.lessons(profile), digest)


def _seed(experiment: Experiment, batch: Batch) -> str:
    """Another for each batch, and for each night; the same whenever the plan of a batch is made."""
    return f"{experiment.run.seed} {experiment.slug}/{batch.number}"


def _snapshot(experiment: Experiment, profile: Profile, job: JobSpec, batch: Batch, before: Plan | None) -> Snapshot:
    digest = recorded_digest(before.record(profile.key)) if before is not None else None
    if digest is None:
        reader = LessonReader(profile.model, simulated=profile.agent.simulated)
        known = [TaskRef(task.id, task.dataset, task.family) for task in experiment.tasks]
        return registry.resolve("memories", MEMORY)(
            experiment.memory or experiment.root, profile.lessons, job.tasks, reader, known, _seed(experiment, batch)
        )
    found = read_snapshot(batch.lessons(profile.key), digest)
    later = [task.ref.id for task in job.tasks if task_key(task.label, task.ref.id) not in found.tasks]
    if later:
        raise UserError(
            f'profile "{profile.key}" has no lessons for {plural(len(later), "task")} added to the file since:'
            f" {', '.join(later[:5])}; its lessons were selected when batch {batch.number} was planned",
            where=str(experiment.file),
            hint="start a new batch: tbench run",
        )
    return found
