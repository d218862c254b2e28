"""From a plan to one that can run: remote tasks found, problems known."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from terminalbench.errors import UserError, did_you_mean
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.config import Experiment
from terminalbench.experiments.plan import Exclusion, Plan, PlannedTask
from terminalbench.experiments.profiles import Profile
from terminalbench.experiments.tables import DEFAULT_ENV_FILE
from terminalbench.harbor.jobs import job_config
from terminalbench.harbor.lookup import Found
from terminalbench.harbor.preflight import JobRequest
from terminalbench.runner.environment import child_environment
from terminalbench.runner.executors.local import ask
from terminalbench.runner.preflight import check_jobs, known_problems, profile_refused

_LOOKUP = "terminalbench.harbor.lookup"
_LOOKUP_SEC = 300


@dataclass(frozen=True)
class Prepared:
    """A plan with everything found out, and what each profile's Harbor process needs."""

    plan: Plan
    profiles: dict[str, Profile]
    environments: dict[str, dict[str, str]]


def prepare(experiment: Experiment, plan: Plan, shell: Mapping[str, str]) -> Prepared:
    """Find remote tasks, and ask Harbor what would go wrong. Raises when nothing could run."""
    profiles = {profile.key: profile for profile in experiment.profiles}
    plan = _with_remote_tasks(plan, shell)
    environments: dict[str, dict[str, str]] = {}
    refused: list[Exclusion] = []
    for job in plan.jobs:
        try:
            environments[job.profile] = child_environment(
                profiles[job.profile], experiment.root, shell, experiment.run.container_env
            )
        except UserError as error:
            refused.append(profile_refused(job.profile, f"its env file {error}"))
    planned = (profiles[job.profile] for job in plan.jobs)
    refused += known_problems((profile.key, profile.content, profile.mcp_git_ref) for profile in planned)
    plan = msgspec.structs.replace(plan, excluded=(*plan.excluded, *refused))
    asked = [runnable for job in plan.jobs if (runnable := plan.runnable(job)).tasks]
    if not asked:
        return Prepared(plan, profiles, environments)
    batch = Batch(experiment.results_root / plan.slug / str(plan.batch))
    requests = [
        JobRequest(
            job.name,
            job_config(experiment, profiles[job.profile], job, batch),
            environments[job.profile],
            tuple(experiment.run.harbor_args),
            str(profiles[job.profile].env_file or experiment.root / DEFAULT_ENV_FILE),
        )
        for job in asked
    ]
    found = check_jobs(asked, requests, experiment.run.container_env)
    return Prepared(msgspec.structs.replace(plan, excluded=(*plan.excluded, *found)), profiles, environments)


def _with_remote_tasks(plan: Plan, shell: Mapping[str, str]) -> Plan:
    """Every task with its place: remote datasets are asked once each, and the order of the file stays."""
    wanted = {task.label: task for job in plan.jobs for task in job.tasks if not task.found}
    if not wanted:
        return plan
    configs = [task.config for task in wanted.values()]
    found: dict[str, Found] = dict(
        zip(wanted, ask(_LOOKUP, configs, list[Found], shell, _LOOKUP_SEC, "looking up the tasks"), strict=True)
    )
    for label, answer in found.items():
        if answer.problem is not None:
            dataset = wanted[label].ref.dataset
            raise UserError(f"its tasks could not be looked up: {answer.problem}", where=f"dataset {dataset}")
    jobs = tuple(
        msgspec.structs.replace(job, tasks=tuple(t if t.found else _found(t, found[t.label]) for t in job.tasks))
        for job in plan.jobs
    )
    return msgspec.structs.replace(plan, jobs=jobs)


def _found(task: PlannedTask, answer: Found) -> PlannedTask:
    if task.ref.id not in answer.tasks:
        raise UserError(
            f'has no task "{task.ref.id}"',
            where=f"dataset {task.ref.dataset}",
            hint=did_you_mean(task.ref.id, list(answer.tasks)),
        )
    return msgspec.structs.replace(task, config=answer.tasks[task.ref.id], found=True)
