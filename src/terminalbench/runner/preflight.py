"""Asking, before the first trial, what would go wrong, and deciding what is left out of the run."""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from terminalbench.errors import UserError
from terminalbench.experiments.plan import Exclusion, ExclusionKind, JobSpec, Plan
from terminalbench.harbor.preflight import JobRequest, Report, Request
from terminalbench.runner.executors.local import ask
from terminalbench.runner.pins import source_problem

MINIMUM_FREE_MB = 512
"""Less than this, and nothing is started."""
LOWEST_FREE_MB = 64
"""Less than this while trials run, and they are ended while there is still room to record them."""
_CHECK_SEC = 900


def ask_harbor(requests: list[JobRequest]) -> Report:
    """Check the jobs in a process that imports Harbor; this one does not."""
    module, what = "terminalbench.harbor.preflight", "the check before the run"
    return ask(module, Request(tuple(requests)), Report, requests[0].env, _CHECK_SEC, what)


def check_jobs(asked: list[JobSpec], requests: list[JobRequest], container_env: str) -> tuple[Exclusion, ...]:
    """What Harbor says of these jobs cannot run: whole profiles, and tasks for every profile.

    Raises when there is no such environment here.
    """
    report = ask_harbor(requests)
    if report.environment is not None:
        hint = 'container_env = "local" needs no daemon' if container_env == "docker" else None
        raise UserError(f"{container_env}: {report.environment}", where="run.container_env", hint=hint)
    profiles = {job.name: job.profile for job in asked}
    refused = (profile_refused(profiles[job.name], "; ".join(job.problems)) for job in report.jobs if job.problems)
    tasks = (
        Exclusion(reason, task=asked[0].tasks[index].ref, kind=ExclusionKind.TASK_REFUSED)
        for index, reason in sorted(report.tasks.items())
    )
    return (*refused, *tasks)


def known_problems(profiles: Iterable[tuple[str, Mapping[str, Any], str | None]]) -> Iterator[Exclusion]:
    """The profiles that cannot run, without asking Harbor: each by its key, its content and its pinned MCP commit."""
    for key, content, ref in profiles:
        source = content.get("mcp_git_source")
        if content.get("workflow") is not None:
            yield profile_refused(key, "guided workflows are not available yet")
        elif source is not None and (problem := source_problem(source, ref)) is not None:
            yield profile_refused(key, problem)


def profile_refused(profile: str, reason: str) -> Exclusion:
    """A profile that cannot run."""
    return Exclusion(reason, profile=profile, kind=ExclusionKind.PROFILE_REFUSED)


def refuse_if_nothing_is_left(plan: Plan, where: str) -> None:
    """A run without a single trial is a mistake: say everything that is wrong."""
    if any(plan.runnable(job).tasks for job in plan.jobs):
        return
    reasons = [f"{_subject(e)}: {e.reason}" for e in plan.excluded]
    raise UserError("nothing can run:\n  " + "\n  ".join(dict.fromkeys(reasons)), where=where)


def _subject(exclusion: Exclusion) -> str:
    if exclusion.profile is not None:
        return f"profile {exclusion.profile}"
    return f"task {exclusion.task.id}" if exclusion.task is not None else "the run"


def refuse_a_full_disk(folder: Path) -> None:
    """Trials on a disk that is nearly full would break in the middle."""
    while not folder.exists():
        folder = folder.parent
    free = free_mb(folder)
    if free is not None and free < MINIMUM_FREE_MB:
        raise UserError(
            f"only {free} MB are free; a run needs at least {MINIMUM_FREE_MB} MB",
            where=str(folder),
            hint="free some space, or choose another run.results_root",
        )


def disk_is_full(folder: Path) -> str | None:
    """Why trials that write to `folder` have to end now, or None while there is room."""
    free = free_mb(folder)
    if free is None or free >= LOWEST_FREE_MB:
        return None
    return f"the disk is full: {free} MB are free in {folder}, {LOWEST_FREE_MB} MB are needed to record trials"


def free_mb(folder: Path) -> int | None:
    """What is free on the disk of a folder; None when the file system does not say."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None
    return usage.free // (1024 * 1024) if usage.total else None


def refuse_left_out(excluded: Sequence[Exclusion], where: str) -> None:
    """With `--strict`, rather nothing than less."""
    if excluded:
        reasons = "\n  ".join(exclusion_lines(excluded))
        raise UserError(f"would be left out (--strict):\n  {reasons}", where=where)


def exclusion_lines(excluded: Iterable[Exclusion]) -> list[str]:
    """What is left out and why, a line each."""
    return [f"{' / '.join(filter(None, [e.profile, e.task.id if e.task else None]))}: {e.reason}" for e in excluded]
