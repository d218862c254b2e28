"""`tbench plan`: a plan as a person and as a machine reads it."""

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from terminalbench.cli.options import (
    PATH,
    ListCommand,
    attempts_option,
    experiment_argument,
    json_option,
    label_option,
    picks,
    root_option,
)
from terminalbench.cli.output import print_json, text_width
from terminalbench.errors import EXIT_OK
from terminalbench.text.foreign import printable
from terminalbench.text.names import typed
from terminalbench.text.numbers import dollars, duration, noun, plural, some
from terminalbench.text.table import wrapped, wrapped_command

if TYPE_CHECKING:
    from terminalbench.experiments.experiment import Experiment
    from terminalbench.experiments.plan import JobSpec
    from terminalbench.experiments.planner import Selection
    from terminalbench.experiments.tables import RunTable
    from terminalbench.lab.plan import PlannedBatch, PlannedBudget

_SHOWN_TASKS = 40
_NAME_WIDTH = 30


@click.command("plan", cls=ListCommand)
@experiment_argument
@picks
@attempts_option
@label_option
@click.option(
    "--batch", type=click.IntRange(min=0), help="Plan for this batch, and show which of its trials are reused."
)
@json_option
@click.option("--job-configs", type=PATH, metavar="DIR", help="Write the JobConfig of each job into this folder.")
@root_option
def command(
    experiment: Path,
    tasks: tuple[str, ...],
    profiles: tuple[str, ...],
    attempts: int | None,
    labels: dict[str, str],
    batch: int | None,
    as_json: bool,
    job_configs: Path | None,
    root: Path | None,
) -> int:
    """Show exactly what would run: profiles and how they differ, trials in order, one job per profile.

    Needs no key, takes no batch number, and writes nothing except what --job-configs asks for. It asks
    registries whether missing images of tasks exist, but fetches nothing.
    """
    from terminalbench.experiments.config import load
    from terminalbench.experiments.planner import Selection

    selection = Selection(tasks, profiles, labels, attempts)
    loaded = load(experiment, root)
    if batch is not None:
        from terminalbench.lab.select import numbered

        numbered(loaded, batch)
    return show_plan(loaded, selection, batch, as_json=as_json, job_configs=job_configs)


def show_plan(
    experiment: "Experiment",
    selection: "Selection",
    batch: int | None,
    *,
    as_json: bool,
    job_configs: Path | None = None,
) -> int:
    """Plan an experiment and print it."""
    from terminalbench.lab.plan import plan_batch

    planned = plan_batch(experiment, selection, batch)
    if job_configs is not None:
        planned.write_job_configs(job_configs)
    if as_json:
        print_json(plan_document(planned))
    else:
        click.echo(plan_text(planned, text_width()), nl=False)
    return EXIT_OK


def plan_document(planned: "PlannedBatch") -> dict[str, Any]:
    """Everything, for machines."""
    jobs = [
        {
            "name": job.name,
            "profile": job.profile,
            "profile_id": job.profile_id,
            "trials": planned.plan.runnable(job).trials,
            "command": planned.command(job),
            "config": planned.config(job),
        }
        for job in planned.plan.jobs
    ]
    return {
        "slug": planned.plan.slug,
        "name": planned.plan.name,
        "batch": planned.plan.batch,
        "folder": planned.plan.folder,
        "baseline": planned.plan.baseline,
        **({"labels": planned.plan.labels} if planned.plan.labels else {}),
        "profiles": [_profile_json(planned, job) for job in planned.plan.jobs],
        "cells": planned.plan.cells(),
        "jobs": jobs,
        **({"images": planned.books.images} if planned.books.images else {}),
        "excluded": planned.plan.excluded,
        "reuse": list(planned.reuse),
        **({"forecast": planned.forecast} if planned.forecast is not None else {}),
        **({"budget": planned.budget} if planned.budget is not None else {}),
        "notes": _notes(planned),
    }


def _profile_json(planned: "PlannedBatch", job: "JobSpec") -> dict[str, Any]:
    from terminalbench.experiments.profile_changes import differences
    from terminalbench.experiments.profiles import policy_id

    profile = planned.profile(job)
    return {
        "key": profile.key,
        "id": profile.id,
        **({"policy_id": policy_id(profile.content), "lessons": profile.snapshot} if profile.snapshot else {}),
        "description": profile.description,
        "env_file": str(profile.env_file) if profile.env_file else None,
        "content": profile.content,
        "differs_from_baseline": [
            {"aspect": d.aspect, "baseline": d.old, "profile": d.new}
            for d in differences(planned.baseline.content, profile.content)
        ],
    }


def plan_text(planned: "PlannedBatch", width: int) -> str:
    """The plan as a person reads it, in lines of at most `width`."""
    from terminalbench.analytics.plan_forecast import forecast_lines
    from terminalbench.experiments.plan import HARBOR_PARALLEL, exclusion_lines

    jobs = planned.plan.jobs
    total = sum(job.trials for job in jobs)
    left_out = total - sum(planned.plan.runnable(job).trials for job in jobs)
    attempts = plural(planned.plan.settings.attempts, "attempt")
    factors = (plural(len(jobs[0].tasks), "task"), plural(len(jobs), "profile"), attempts)
    run = planned.experiment.run
    where = f"batch {planned.plan.batch} in {planned.plan.folder}"
    lines = [
        planned.plan.name,
        f"{where}{'' if planned.taken else ' (the next free number; reserved when a run starts)'}",
        f"environment {run.container_env}; "
        f"{plural(run.profiles_parallel, 'profile') if run.profiles_parallel else 'all profiles'} side by side, "
        f"{run.parallel or f'{HARBOR_PARALLEL} (Harbor default)'} {noun(run.parallel, 'trial')} at once in each",
        *_network_lines(run),
    ]
    if planned.budget is not None:
        lines += _budget_lines(planned.budget)
    if run.run_timeout_sec is not None:
        limit = duration(run.run_timeout_sec)
        lines.append(f"no trial starts later than {limit} after the start of the run; running trials finish")
    if labels := planned.plan.labels:
        lines.append(f"labels {', '.join(f'{name}={printable(value)}' for name, value in labels.items())}")
    trials = f"Trials: {' x '.join(factors)} = {total}{f', {left_out} of them left out' if left_out else ''}"
    lines += ["", f"Profiles ({len(jobs)})", *_profile_lines(planned), "", trials, *_task_lines(planned)]
    commands = ["", f"Jobs ({len(jobs)}, one per profile; in each, attempt by attempt)"]
    commands += [line for job in jobs for line in _job_lines(planned, job, width)]
    rest = []
    if images := [*planned.books.lines(), *planned.moved]:
        rest += ["", "Images", *(f"  {line}" for line in images)]
    if planned.plan.excluded:
        rest += ["", "Left out", *(f"  {line}" for line in exclusion_lines(planned.plan.excluded))]
        if planned.experiment.quarantine:
            rest.append(f"  (tbench check {typed(planned.experiment.file)} --release checks quarantined tasks again)")
    rest += _reuse_lines(planned)
    if planned.forecast is not None:
        rest += ["", "Forecast", *forecast_lines(planned.forecast)]
    if notes := _notes(planned):
        rest += ["", "Notes", *(f"  {note}" for note in notes)]
    return "\n".join([*wrapped(lines, width), *commands, *wrapped(rest, width)]) + "\n"


def _job_lines(planned: "PlannedBatch", job: "JobSpec", width: int) -> list[str]:
    from terminalbench.harbor.jobs import shown

    argv = shown(planned.command(job), planned.experiment.root)
    trials = plural(planned.plan.runnable(job).trials, "trial")
    return [f"  {job.profile}: {trials}", *wrapped_command(argv, width, "    ")]


def _notes(planned: "PlannedBatch") -> list[str]:

    from terminalbench.experiments.environments import environment_needs
    from terminalbench.runner.environment import left_out_here

    experiment = planned.experiment
    profiles = [planned.profile(job) for job in planned.plan.jobs]
    missing = left_out_here(profiles, experiment.root, os.environ, experiment.run.container_env)
    left_out = [f"a run on this machine leaves out {', '.join(keys)}: {why}" for why, keys in missing.items()]
    return [*planned.plan.all_notes(), *environment_needs(experiment), *left_out]


def _network_lines(run: "RunTable") -> list[str]:
    """Return what trials may reach, where that is not the usual."""
    from terminalbench.experiments.network import phases

    if isinstance(run.network, str):
        return ["network: this machine's own, shared by all trials"]
    own = phases(run.network) if run.network is not None else {}
    told = [f"{phase} {value if isinstance(value, str) else some(value)}" for phase, value in own.items()]
    return [f"network: {'; '.join(told)}"] if told else []


def _budget_lines(budget: "PlannedBudget") -> list[str]:
    """The budget, what a trial is taken to cost and why, what is likely to be spent, and the most that may be."""
    outside = f"; does not apply to {', '.join(budget.free)}, which cost nothing" if budget.free else ""
    shares = "for the whole batch, in equal shares until a profile needs less"
    lines = [f"budget {dollars(budget.budget_usd)} {shares}{outside}"]
    lines += [f"  {key}: a trial costs about {dollars(one.usd)} ({one})" for key, one in budget.likely.items()]
    unknown = ", ".join(budget.cost_unknown)
    if unknown:
        careful = "so trials run one at a time until the first one ends"
        lines.append(f"  {unknown}: the cost of a trial is unknown, {careful}")
    if budget.cost_usd is not None:
        short = "" if budget.cost_usd <= budget.budget_usd else ": not all trials will run"
        lines.append(f"  expected cost: {dollars(budget.cost_usd)} of {dollars(budget.budget_usd)}{short}")
    first = f"1 trial{' each' if len(budget.cost_unknown) > 1 else ''} of {unknown}, then " if unknown else ""
    most = f", {dollars(budget.at_once_usd)} at these costs" if budget.at_once_usd is not None else ""
    if budget.slots:
        lines.append(f"  largest possible overspend: {first}the cost of {plural(budget.slots, 'trial')} at once{most}")
    return lines


def _profile_lines(planned: "PlannedBatch") -> list[str]:
    from terminalbench.experiments.profile_changes import differences, summaries
    from terminalbench.experiments.profiles import policy_id

    baseline = planned.baseline
    profiles = [planned.profile(job) for job in planned.plan.jobs]
    width = min(max(len(p.key) for p in profiles), _NAME_WIDTH)
    lines: list[str] = []
    for profile in profiles:
        what = " ".join(filter(None, (profile.agent.name, profile.model, profile.reasoning)))
        role = "  (baseline)" if profile.key == baseline.key else "  (oracle)" if profile.oracle else ""
        lines.append(f"  {profile.key:<{width}}  {profile.id}  {what}{role}")
        if profile.parallel is not None:
            lines.append(f"  {'':<{width}}  {plural(profile.parallel, 'trial')} at once")
        if profile.description:
            lines.append(f"  {'':<{width}}  {profile.description}")
        if profile.snapshot is not None:
            policy = f"policy {policy_id(profile.content)}"
            lines.append(f"  {'':<{width}}  {profile.snapshot}; {policy}")
        if profile.key == baseline.key:
            continue
        changes = summaries(differences(baseline.content, profile.content))
        for change in changes or ["the same content as the baseline"]:
            lines.append(f"  {'':<{width}}  vs {baseline.key}: {change}")
    return lines


def _task_lines(planned: "PlannedBatch") -> list[str]:
    tasks = planned.plan.jobs[0].tasks
    width = min(max(len(task.ref.id) for task in tasks), _NAME_WIDTH)
    lines = []
    for number, task in enumerate(tasks[:_SHOWN_TASKS], start=1):
        family = f"  family {printable(task.ref.family)}" if task.ref.family else ""
        lines.append(f"  {number:>4}  {task.ref.id:<{width}}  {task.ref.dataset}{family}")
    if len(tasks) > _SHOWN_TASKS:
        per_dataset = Counter(task.ref.dataset for task in tasks[_SHOWN_TASKS:])
        rest = ", ".join(f"{number} of {name}" for name, number in per_dataset.items())
        lines.append(f"        ... and {len(tasks) - _SHOWN_TASKS} more ({rest}); --json lists all")
    return lines


def _reuse_lines(planned: "PlannedBatch") -> list[str]:
    if not planned.taken:
        return []
    lines = ["", f"Reused from batch {planned.plan.batch}"]
    for reuse in planned.reuse:
        if reuse.same_profile:
            planned_trials = plural(reuse.planned, "trial is", "trials are")
            lines.append(f"  {reuse.profile}: {reuse.finished} of {planned_trials} finished and reused")
        else:
            lines.append(f"  {reuse.profile}: nothing; the batch has no such profile, or its content has changed since")
    return lines
