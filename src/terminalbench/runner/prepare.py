"""From a plan to one that can run: remote tasks found, problems known."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from terminalbench.errors import UserError, did_you_mean
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.config import Experiment
from terminalbench.experiments.plan import Exclusion, ExclusionKind, Plan, PlannedTask
from terminalbench.experiments.profiles import Profile
from terminalbench.experiments.tables import DEFAULT_ENV_FILE
from terminalbench.harbor.jobs import job_config
from terminalbench.harbor.lookup import Found
from terminalbench.harbor.preflight import JobRequest
from terminalbench.runner.environment import child_environment
from terminalbench.runner.executors.local import ask
from terminalbench.runner.pins import source_problem
from terminalbench.runner.preflight import ask_harbor, exclusions
from terminalbench.secrets.values import Secrets
from terminalbench.text.numbers import duration

_LOOKUP_TIMEOUT_SEC = 300


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
            reason = f"its env file {error}"
            refused.append(Exclusion(reason=reason, profile=job.profile, kind=ExclusionKind.PROFILE_REFUSED))
    plan = msgspec.structs.replace(plan, excluded=(*plan.excluded, *refused, *_beforehand(plan, profiles)))
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
    report = ask_harbor(requests, environments[asked[0].profile])
    if report.environment is not None:
        hint = 'container_env = "local" needs no daemon' if experiment.run.container_env == "docker" else None
        raise UserError(f"{experiment.run.container_env}: {report.environment}", where="run.container_env", hint=hint)
    plan = msgspec.structs.replace(plan, excluded=(*plan.excluded, *exclusions(asked, report)))
    return Prepared(plan, profiles, environments)


def _beforehand(plan: Plan, profiles: dict[str, Profile]) -> list[Exclusion]:
    """What we know ourselves, without asking Harbor."""
    planned = [profiles[job.profile] for job in plan.jobs]
    problems = [(p.key, known_problem(p.content, p.mcp_git_ref)) for p in planned]
    return [
        Exclusion(reason=problem, profile=key, kind=ExclusionKind.PROFILE_REFUSED)
        for key, problem in problems
        if problem is not None
    ]


def known_problem(content: Mapping[str, Any], ref: str | None) -> str | None:
    """Why a profile of this content cannot run, without asking Harbor; `ref` is what its MCP source is pinned to."""
    if content.get("workflow") is not None:
        return "guided workflows are not available yet"
    source = content.get("mcp_git_source")
    return source_problem(source, ref) if source is not None else None


def _with_remote_tasks(plan: Plan, shell: Mapping[str, str]) -> Plan:
    """Every task with its place: remote datasets are asked once each, and the order of the file stays."""
    wanted = {task.label: task for job in plan.jobs for task in job.tasks if not task.found}
    if not wanted:
        return plan
    found = dict(zip(wanted, _look_up([task.config for task in wanted.values()], shell), strict=True))
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


def _look_up(configs: list[dict], shell: Mapping[str, str]) -> list[Found]:
    try:
        ran = ask("terminalbench.harbor.lookup", msgspec.json.encode(configs), shell, _LOOKUP_TIMEOUT_SEC)
    except subprocess.TimeoutExpired:
        raise UserError(f"looking up the tasks took longer than {duration(_LOOKUP_TIMEOUT_SEC)}") from None
    if ran.returncode != 0:
        tail = ran.stderr.decode(errors="replace").strip().splitlines()[-1:]
        said = Secrets.of_environment(shell).one_line(" ".join(tail))
        raise UserError(f"the tasks could not be looked up: {said}")
    return msgspec.json.decode(ran.stdout, type=list[Found])
