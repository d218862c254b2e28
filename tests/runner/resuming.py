"""Batches that `resume` goes on with, without anything that runs."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from support.experiments import Project
from support.results import make_trial
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.experiments.config import load
from terminalbench.experiments.experiment import Experiment
from terminalbench.experiments.plan import JobSpec, Plan
from terminalbench.experiments.planner import make_plan
from terminalbench.harbor.preflight import JobReport, JobRequest, PreflightReport
from terminalbench.runner.preflight import PreparedPlan
from terminalbench.runner.run import RunResult, record

NOW = datetime(2026, 1, 23, 16, 26, 48, tzinfo=UTC)
HEAD = """
schema_version = 2
slug = "s"
[run]
container_env = "local"
{run}
[tasks]
default_dataset = "d"
items = [{{ id = "a" }}, {{ id = "b" }}]
{rest}
"""
ORACLE = '[profiles.p]\nagent = "oracle"\n'


def experiment(project: Project, profiles: str = ORACLE, *, run: str = "", name: str = "exp.toml") -> Experiment:
    for task in ("a", "b"):
        project.task("d", task)
    return load(project.experiment(HEAD.format(run=run, rest=profiles), name))


def planned(made: Experiment) -> Batch:
    """The batch of an experiment as `run` records it, before its first trial."""
    batch = allocate(made.results_root, made.slug)
    plan = make_plan(made, batch, NOW)
    record(made, PreparedPlan(plan, {profile.key: profile for profile in made.profiles}, {}), plan, batch)
    return batch


def finished(batch: Batch, *tasks: str) -> None:
    for task in tasks:
        make_trial(batch, f"{task}__1")


class Started:
    """Stands in for Harbor: everything is in order but what the test says, and jobs are noted instead of run."""

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}
        self.requests: list[JobRequest] = []
        self.jobs: list[JobSpec] = []
        self.environments: dict[str, dict[str, str]] = {}

    def ask(self, requests: Sequence[JobRequest]) -> PreflightReport:
        self.requests = list(requests)
        found = {request.name: self.problems.get(request.name.split("__")[-1]) for request in requests}
        return PreflightReport(None, tuple(JobReport(name, (why,) if why else ()) for name, why in found.items()), {})

    def run(self, batch: Batch, plan: Plan, jobs: list[JobSpec], environments: Any, *_: object) -> RunResult:
        self.jobs, self.environments = jobs, environments
        return RunResult(batch, plan, False)

    def cells(self) -> set[tuple[str, str]]:
        return {(job.profile, task.ref.id) for job in self.jobs for task in job.tasks}
