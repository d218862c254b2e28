"""A plan as a person and as a machine reads it."""

import textwrap
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from terminalbench.analytics.forecast import Forecast, forecast
from terminalbench.errors import TbenchError, UserError
from terminalbench.experiments.batch import Batch, batch_numbers, next_number
from terminalbench.experiments.config import Experiment, load
from terminalbench.experiments.difference import differences
from terminalbench.experiments.plan import HARBOR_PARALLEL, JobSpec, Plan, Selection, make_plan
from terminalbench.experiments.profiles import Profile
from terminalbench.files import encode_json, read_json, write_json
from terminalbench.harbor.jobs import command, job_config, shown
from terminalbench.harbor.read.results import finished_trials
from terminalbench.harbor.read.suspicion import WITHOUT_MODEL
from terminalbench.index.history import past_trials
from terminalbench.index.scan import profile_of
from terminalbench.report.forecast import forecast_lines
from terminalbench.runner.pins import as_planned

WIDTH = 110
SHOWN_TASKS = 40


@dataclass(frozen=True)
class Reuse:
    """What an existing batch already holds for one job."""

    profile: str
    same_profile: bool
    finished: int
    planned: int


@dataclass(frozen=True)
class ShownPlan:
    """An experiment and its plan, ready to show."""

    experiment: Experiment
    plan: Plan
    batch: Batch
    taken: bool
    reuse: tuple[Reuse, ...] = ()
    forecast: Forecast | None = None

    def profile(self, job: JobSpec) -> Profile:
        """The profile a job runs."""
        return next(p for p in self.experiment.profiles if p.key == job.profile)

    def config(self, job: JobSpec) -> dict[str, Any]:
        """The exact JobConfig of a job: without what is left out."""
        return job_config(self.experiment, self.profile(job), self.plan.runnable(job), self.batch)

    def command(self, job: JobSpec) -> list[str]:
        """The exact command of a job."""
        return command(self.plan.settings, job, self.batch)

    def write_job_configs(self, folder: Path) -> None:
        """Write each job's JobConfig to `<folder>/<job>.job.json`."""
        for job in self.plan.jobs:
            write_json(folder / f"{job.name}.job.json", self.config(job))

    def as_json(self) -> str:
        """Everything, for machines."""
        jobs = [
            {
                "name": job.name,
                "profile": job.profile,
                "profile_id": job.profile_id,
                "trials": self.plan.runnable(job).trials,
                "command": self.command(job),
                "config": self.config(job),
            }
            for job in self.plan.jobs
        ]
        document = {
            "slug": self.plan.slug,
            "name": self.plan.name,
            "batch": self.plan.batch,
            "folder": self.plan.folder,
            "baseline": self.plan.baseline,
            **({"labels": self.plan.labels} if self.plan.labels else {}),
            "profiles": [self._profile_json(job) for job in self.plan.jobs],
            "cells": self.plan.cells(),
            "jobs": jobs,
            "excluded": self.plan.excluded,
            "reuse": list(self.reuse),
            **({"forecast": self.forecast} if self.forecast is not None else {}),
            "notes": self.plan.notes,
        }
        return encode_json(document).decode()

    def _baseline(self) -> Profile:
        return next(p for p in self.experiment.profiles if p.key == self.plan.baseline)

    def _profile_json(self, job: JobSpec) -> dict[str, Any]:
        profile = self.profile(job)
        return {
            "key": profile.key,
            "id": profile.id,
            "description": profile.description,
            "env_file": str(profile.env_file) if profile.env_file else None,
            "content": profile.content,
            "differs_from_baseline": [
                {"aspect": d.aspect, "baseline": d.old, "profile": d.new}
                for d in differences(self._baseline(), profile)
            ],
        }

    def as_text(self) -> str:
        """The plan as a person reads it."""
        jobs = self.plan.jobs
        total = sum(job.trials for job in jobs)
        left_out = total - sum(self.plan.runnable(job).trials for job in jobs)
        factors = (
            _n(len(jobs[0].tasks), "task"),
            _n(len(jobs), "profile"),
            _n(self.experiment.run.attempts, "attempt"),
        )
        run = self.experiment.run
        where = f"batch {self.plan.batch} in {self.plan.folder}"
        lines = [
            self.plan.name,
            f"{where}{'' if self.taken else ' (the next free number; taken when a run starts)'}",
            f"environment {run.container_env}; "
            f"{f'{run.profiles_parallel} profiles' if run.profiles_parallel else 'all profiles'} side by side, "
            f"{run.parallel or f'{HARBOR_PARALLEL} (Harbor default)'} trials at once in each",
            *self._limit_lines(),
            "",
            f"Profiles ({len(jobs)})",
            *self._profile_lines(),
            "",
            f"Trials: {' x '.join(factors)} = {total}{f', {left_out} of them left out' if left_out else ''}",
            *self._task_lines(),
            "",
            f"Jobs ({len(jobs)}, one per profile; each runs attempt by attempt, in the order of the tasks)",
            *(
                f"  {self.plan.runnable(job).trials:>5} trials  {shown(self.command(job), self.experiment.root)}"
                for job in jobs
            ),
        ]
        if self.plan.excluded:
            reasons = [f"  {e.task.id if e.task else e.profile}: {e.reason}" for e in self.plan.excluded]
            lines += ["", "Left out", *reasons]
            if self.experiment.quarantine:
                lines.append(f"  (tbench check {self.experiment.file} --release proves quarantined tasks again)")
        lines += self._reuse_lines()
        if self.forecast is not None:
            lines += ["", "Forecast", *forecast_lines(self.forecast)]
        if self.plan.notes:
            lines += ["", "Notes", *(f"  {note}" for note in self.plan.notes)]
        return "\n".join(lines) + "\n"

    def _limit_lines(self) -> list[str]:
        """Budget and deadline, and who is outside the budget."""
        run = self.experiment.run
        lines = []
        if run.budget_usd is not None:
            free = [profile.key for profile in self.experiment.profiles if profile.agent.name in WITHOUT_MODEL]
            outside = f"; not for {', '.join(free)}: no model, no cost" if free else ""
            lines.append(f"budget ${run.budget_usd:.2f} for the whole batch{outside}")
        if run.run_timeout_sec is not None:
            lines.append(f"no trial starts later than {run.run_timeout_sec:g} s after the start; running ones finish")
        return lines

    def _profile_lines(self) -> list[str]:
        baseline = self._baseline()
        profiles = [self.profile(job) for job in self.plan.jobs]
        width = max(len(p.key) for p in profiles)
        lines: list[str] = []
        for profile in profiles:
            what = " ".join(filter(None, (profile.agent.name, profile.model, profile.reasoning)))
            role = "  (baseline)" if profile.key == baseline.key else ""
            lines.append(f"  {profile.key:<{width}}  {profile.id}  {what}{role}")
            if profile.description:
                lines.append(f"  {'':<{width}}  {profile.description}")
            if profile.key == baseline.key:
                continue
            changes = [d.summary() for d in differences(baseline, profile)] or ["the same treatment as the baseline"]
            for change in changes:
                lines += textwrap.wrap(
                    change,
                    WIDTH,
                    initial_indent=f"  {'':<{width}}  vs {baseline.key}: ",
                    subsequent_indent=" " * (width + 8),
                )
        return lines

    def _task_lines(self) -> list[str]:
        tasks = self.plan.jobs[0].tasks
        width = max(len(task.ref.id) for task in tasks)
        lines = []
        for number, task in enumerate(tasks[:SHOWN_TASKS], start=1):
            family = f"  family {task.ref.family}" if task.ref.family else ""
            lines.append(f"  {number:>4}  {task.ref.id:<{width}}  {task.ref.dataset}{family}")
        if len(tasks) > SHOWN_TASKS:
            per_dataset = Counter(task.ref.dataset for task in tasks[SHOWN_TASKS:])
            rest = ", ".join(f"{count} of {name}" for name, count in per_dataset.items())
            lines.append(f"        ... and {len(tasks) - SHOWN_TASKS} more ({rest}); --json lists all")
        return lines

    def _reuse_lines(self) -> list[str]:
        if not self.taken:
            return []
        lines = ["", f"Reused from batch {self.plan.batch}"]
        for reuse in self.reuse:
            if reuse.same_profile:
                lines.append(f"  {reuse.profile}: {reuse.finished} of {reuse.planned} trials are finished and kept")
            else:
                lines.append(
                    f"  {reuse.profile}: nothing; the batch has no such profile, or it was another treatment then"
                )
        return lines


def plan_file(file: Path, root: Path | None, selection: Selection, number: int | None = None) -> ShownPlan:
    """Load and plan an experiment; `number` plans into an existing batch."""
    experiment = load(file, root)
    results = experiment.results_root
    numbers = batch_numbers(results, experiment.slug)
    if number is not None and number not in numbers:
        known = ", ".join(map(str, numbers)) or "none"
        raise UserError(
            f"there is no batch {number} of {experiment.slug}", where=str(results), hint=f"batches: {known}"
        )
    wanted = next_number(results, experiment.slug) if number is None else number
    batch = Batch(results / experiment.slug / str(wanted))
    taken = number is not None
    before = _before(batch) if taken else None
    if before is not None:
        experiment = as_planned(experiment, before)
    plan = make_plan(experiment, batch, datetime.now(UTC), selection)
    reuse = _reuse(plan, batch, before) if taken else ()
    finished = {held.profile: held.finished for held in reuse}
    return ShownPlan(experiment, plan, batch, taken, reuse, forecast(plan, past_trials(results), finished))


def _n(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _before(batch: Batch) -> Plan | None:
    """The plan of an existing batch; None when it was never set up."""
    try:
        return read_json(batch.plan_json, Plan)
    except FileNotFoundError:
        return None
    except TbenchError as error:
        raise UserError(f"its plan cannot be read: {error.what}", where=str(batch.plan_json)) from error


def _reuse(plan: Plan, batch: Batch, before: Plan | None) -> tuple[Reuse, ...]:
    """What the batch holds of each planned job, by profile id and finished trials on disk."""
    reuse = []
    for job in plan.jobs:
        same = [old for old in (before.jobs if before else ()) if old.profile_id == job.profile_id]
        finished: Counter[tuple[str, str]] = Counter()
        for folder in batch.runs.iterdir() if same and batch.runs.is_dir() else ():
            if folder.is_dir() and profile_of(folder.name) == same[0].profile:
                finished += finished_trials(folder)
        kept = sum(min(finished[task.label, task.ref.id], job.attempts_of(task)) for task in job.tasks)
        reuse.append(Reuse(job.profile, bool(same), kept, job.trials))
    return tuple(reuse)
