"""From an experiment to its plan. Pure: no clock, no network, nothing written."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.datasets import dataset_labels
from terminalbench.experiments.experiment import Experiment, select_profiles, select_tasks
from terminalbench.experiments.plan import (
    BatchDeclaration,
    Exclusion,
    ExclusionKind,
    JobSpec,
    Plan,
    PlannedTask,
    ProfileRecord,
)
from terminalbench.experiments.profiles import RECIPE, Profile
from terminalbench.experiments.project import from_root
from terminalbench.experiments.tables import MOST_ATTEMPTS, SLUG, SLUG_DOC
from terminalbench.records.trial import TaskRef


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
            tasks=tuple(f"{task.dataset}/{task.id}" for task in tasks),
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
