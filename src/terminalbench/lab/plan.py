"""The plan of a run: an experiment planned into a new batch, or into one that is there."""

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.analytics.plan_forecast import Forecast, forecast
from terminalbench.errors import TbenchError, UserError, did_you_mean
from terminalbench.experiments.batch import Batch, batch_numbers, next_number
from terminalbench.experiments.experiment import Experiment, select_profiles
from terminalbench.experiments.plan import Exclusion, ExclusionKind, JobSpec, Plan
from terminalbench.experiments.planner import Selection, plan_with_lessons
from terminalbench.experiments.profiles import Profile
from terminalbench.experiments.task_folder import broken
from terminalbench.harbor.jobs import command, job_config
from terminalbench.harbor.limits.accounts import LikelyCost
from terminalbench.index.history import PastTrial, likely_costs, past_trials
from terminalbench.json_files import read_json, write_json
from terminalbench.lab.arguments import checked
from terminalbench.records.values import total
from terminalbench.runner.images import ImageBooks, image_books, moved_since, to_run, with_images
from terminalbench.text.names import typed


@dataclass(frozen=True)
class Reuse:
    """The trials that an existing batch already holds for one job."""

    profile: str
    same_profile: bool
    finished: int
    planned: int


class PlannedBudget(msgspec.Struct, frozen=True):
    """The effect of a budget on a plan. `free` profiles are beside it; `likely` says what a trial of the others costs.

    Those that are not in it start one trial at a time until the first has told its cost. `slots` are the trials that
    may run at once, `at_once_usd` what they cost together; None is unknown.
    """

    budget_usd: float
    free: list[str]
    likely: dict[str, LikelyCost]
    cost_unknown: list[str]
    cost_usd: float | None
    slots: int
    at_once_usd: float | None


@dataclass(frozen=True)
class PlannedBatch:
    """An experiment, its plan and what it will take. `taken`: the batch exists, and `reuse` says what it holds.

    `books` say which images its tasks need; `moved` are lines about those that are not what they were.
    """

    experiment: Experiment
    plan: Plan
    batch: Batch
    taken: bool
    reuse: tuple[Reuse, ...] = ()
    forecast: Forecast | None = None
    budget: PlannedBudget | None = None
    books: ImageBooks = field(default_factory=ImageBooks)
    moved: tuple[str, ...] = ()

    @property
    def baseline(self) -> Profile:
        """The profile the others are compared with."""
        return self.experiment.by_key[self.plan.baseline]

    def profile(self, job: JobSpec) -> Profile:
        """The profile a job runs."""
        return self.experiment.by_key[job.profile]

    def config(self, job: JobSpec) -> dict[str, Any]:
        """The exact JobConfig of a job: without what is left out."""
        return job_config(self.experiment, self.profile(job), self.plan.runnable(job), self.batch, self.plan.images)

    def command(self, job: JobSpec) -> list[str]:
        """The exact command of a job."""
        return command(self.plan.settings, job, self.batch, price=self.plan.price_of(job.profile))

    def write_job_configs(self, folder: Path) -> None:
        """Write each job's JobConfig to `<folder>/<job>.job.json`."""
        for job in self.plan.jobs:
            write_json(folder / f"{job.name}.job.json", self.config(job))


@checked
def plan(
    experiment: Experiment | Path | str,
    *,
    tasks: Sequence[str] = (),
    profiles: Sequence[str] = (),
    attempts: int | None = None,
    labels: Mapping[str, str] | None = None,
    batch: int | None = None,
    root: Path | str | None = None,
) -> Plan:
    """Plan a run: one job per profile, its trials in order, what is left out. Writes nothing, needs no key.

    `tasks` and `profiles` pick some of the experiment, by name or glob; `attempts` are instead of those of its file;
    `batch` plans into a batch that exists.
    """
    from terminalbench.lab.select import open_experiment

    selection = Selection(tasks, profiles, labels or {}, attempts)
    if batch is not None and (isinstance(batch, bool) or not isinstance(batch, int)):
        raise UserError(f"must be the number of a batch, not {batch!r}", where="plan(batch=...)")
    opened = open_experiment(experiment, root)
    if batch is not None:
        from terminalbench.lab.select import numbered

        numbered(opened, batch)
    return plan_batch(opened, selection, batch).plan


def plan_batch(experiment: Experiment, selection: Selection, number: int | None = None) -> PlannedBatch:
    """The plan with everything there is to say about it before a run; `number` is that of a batch, there or not."""
    results = experiment.results_root
    before = None
    taken = number is not None and number in batch_numbers(results, experiment.slug)
    number = next_number(results, experiment.slug) if number is None else number
    batch = Batch(results / experiment.slug / str(number))
    if taken:
        from terminalbench.runner.provenance import as_planned  # what reads results is not needed for a new batch

        if selection.labels or selection.attempts:
            what = f"batch {number} already exists, with its own labels and attempts"
            raise UserError(what, where=str(batch.folder), hint="leave out --label and --attempts")
        before = _before(batch)
        experiment = as_planned(experiment, before) if before is not None else experiment
    experiment, made = plan_with_lessons(experiment, batch, datetime.now(UTC), selection, before=before)
    made = msgspec.structs.replace(made, excluded=(*made.excluded, *_broken_tasks(experiment, made)))
    made = msgspec.structs.replace(made, images=before.images if before is not None else None)
    books = image_books(made, to_run(made), experiment.root, os.environ, lambda _text: None, lookup=True)
    made = with_images(made, books)
    last = before if taken else _last_plan(batch)
    moved = (*books.notes(), *(moved_since(last, made) if last is not None else ()))
    reuse = _reuse(made, batch, before) if taken else ()
    finished = {held.profile: held.finished for held in reuse}
    past = past_trials(results, made.profiles)
    expected, budget = forecast(made, past, finished), planned_budget(made, past, finished)
    return PlannedBatch(experiment, made, batch, taken, reuse, expected, budget, books, moved)


def _last_plan(batch: Batch) -> Plan | None:
    """The plan of the batch before a new one, if it can be read."""
    from terminalbench.index.places import plan_or_none

    return plan_or_none(Batch(batch.folder.parent / str(batch.number - 1)))


def _broken_tasks(experiment: Experiment, plan: Plan) -> Iterator[Exclusion]:
    """The planned tasks whose folders Harbor would refuse, as far as files tell: a run leaves them out."""
    known = {exclusion.task for exclusion in plan.excluded}
    folders = {(task.dataset, task.id): task.source.folder for task in experiment.tasks}
    for task in plan.jobs[0].tasks:
        folder = folders.get((task.ref.dataset, task.ref.id)) if task.ref not in known else None
        if folder is not None and (wrong := broken(folder)) is not None:
            reason = f"{wrong} (fix {typed(folder)}, or leave out the task)"
            yield Exclusion(reason, task=task.ref, kind=ExclusionKind.TASK_REFUSED)


def planned_budget(
    plan: Plan, past: Sequence[PastTrial], finished: Mapping[str, int] | None = None
) -> PlannedBudget | None:
    """Return what the budget of a plan means for it, without trials that are `finished`; None when it has none."""
    if plan.settings.budget_usd is None:
        return None
    free = plan.free()
    likely = {key: found for key, found in likely_costs(plan, past).items() if key not in free}
    paying = {job.profile: plan.runnable(job).trials for job in plan.jobs if job.profile not in free}
    left = {key: max(0, trials - (finished or {}).get(key, 0)) for key, trials in paying.items()}
    slots = {key: min(plan.at_once(key), trials) for key, trials in left.items()}
    side_by_side = plan.settings.profiles_parallel or len(paying)
    at_once = sorted((slots[key] * likely[key].usd for key in slots if key in likely), reverse=True)
    return PlannedBudget(
        budget_usd=plan.settings.budget_usd,
        free=free,
        likely=likely,
        cost_unknown=[key for key in paying if key not in likely],
        cost_usd=total(trials * likely[key].usd if key in likely else None for key, trials in left.items()),
        slots=sum(sorted(slots.values(), reverse=True)[:side_by_side]),
        at_once_usd=sum(at_once[:side_by_side]) if likely.keys() >= paying.keys() else None,
    )


@dataclass(frozen=True)
class Treatment:
    """The content of a profile: as the experiment says now, or as a batch was planned with it."""

    name: str
    id: str
    content: dict[str, Any]


def treatment(experiment: Experiment, name: str) -> Treatment:
    """The profile called `name`, as it is now; `name@3`: as batch 3 was planned with it."""
    key, at, number = name.partition("@")
    if not at:
        profile = select_profiles(experiment, (key,))[0]
        return Treatment(name, profile.id, profile.content)
    if not number.isdecimal():
        raise UserError(f'"{name}" is not a profile of a batch', hint="add the number of the batch, as in key@3")
    from terminalbench.lab.select import numbered

    batch = numbered(experiment, int(number))
    plan = _before(batch)
    record = plan.record(key) if plan is not None else None
    if record is None:
        known = [profile.key for profile in plan.profiles] if plan is not None else []
        raise UserError(f'has no profile "{key}"', where=str(batch.folder), hint=did_you_mean(key, known))
    return Treatment(name, record.id, record.content)


def _before(batch: Batch) -> Plan | None:
    """The plan of an existing batch; None when it was never set up."""
    try:
        return read_json(batch.plan_json, Plan)
    except FileNotFoundError:
        return None
    except TbenchError as error:
        raise UserError(f"its plan cannot be read: {error.what}", where=str(batch.plan_json)) from error


def _is_same(before: Plan | None, old: JobSpec, plan: Plan, job: JobSpec) -> bool:
    """Return whether a job of a batch has the treatment of one that is planned now, as far as the batch tells."""
    was, now = before.record(old.profile) if before else None, plan.record(job.profile)
    if old.profile != job.profile or was is None or now is None:
        return old.profile_id == job.profile_id
    return not was.changes(now.content)


def _reuse(plan: Plan, batch: Batch, before: Plan | None) -> tuple[Reuse, ...]:
    """Return what the batch holds of each planned job, by profile id and finished trials on disk."""
    from terminalbench.harbor.read.results import finished_trials
    from terminalbench.index.places import profile_of

    reuse = []
    alike: dict[str, list[JobSpec]] = defaultdict(list)
    for old in before.jobs if before else ():
        for name in {old.profile, old.profile_id}:
            alike[name].append(old)
    for job in plan.jobs:
        maybe = {old.name: old for name in (job.profile, job.profile_id) for old in alike[name]}
        same = [old for old in maybe.values() if _is_same(before, old, plan, job)]
        finished: Counter[tuple[str, str]] = Counter()
        for folder in batch.runs.iterdir() if same and batch.runs.is_dir() else ():
            if folder.is_dir() and profile_of(folder.name) == same[0].profile:
                finished += finished_trials(folder)
        kept = sum(min(finished[task.label, task.ref.id], job.attempts_of(task)) for task in job.tasks)
        reuse.append(Reuse(job.profile, bool(same), kept, job.trials))
    return tuple(reuse)
