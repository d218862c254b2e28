"""Planning with a memory: the plan of an experiment whose profiles get lessons, with what memory holds for its tasks.

Where a memory is kept and how it is searched is not known here: the registry has it (`memories`), as a function of the
project, the policy of a profile, the planned tasks, who is to read, all tasks that the experiment knows, and a seed.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from terminalbench import registry
from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.experiment import Experiment
from terminalbench.experiments.lessons import LessonReader, Snapshot, read_snapshot, task_key
from terminalbench.experiments.plan import JobSpec, Plan, ProfileRecord
from terminalbench.experiments.planner import Selection, make_plan
from terminalbench.experiments.profiles import SNAPSHOT, Profile
from terminalbench.json_files import write_json
from terminalbench.records.trial import TaskRef
from terminalbench.text.numbers import plural

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
        dataclasses.replace(one, snapshot=_snapshot(experiment, one, jobs[one.key], batch, before))
        if one.lessons is not None and one.key in jobs
        else one
        for one in experiment.profiles
    )
    if profiles == experiment.profiles:
        return PlannedWith(experiment, plan)
    experiment = dataclasses.replace(experiment, profiles=profiles)
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
