"""Asking, before the first trial, what would go wrong, and deciding what is left out of the run."""

import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from terminalbench.errors import TbenchError, UserError
from terminalbench.experiments.plan import Exclusion, ExclusionKind, JobSpec, Plan
from terminalbench.harbor.preflight import JobRequest, Report, Request
from terminalbench.runner.executors.local import ask
from terminalbench.secrets.values import Secrets
from terminalbench.text.numbers import duration

MINIMUM_FREE_MB = 512
"""Less than this, and nothing is started."""
LOWEST_FREE_MB = 64
"""Less than this while trials run, and they are ended while there is still room to record them."""
_TIMEOUT_SEC = 900


def ask_harbor(requests: list[JobRequest], env: Mapping[str, str]) -> Report:
    """Check the jobs in a process that imports Harbor; this one does not."""
    request = msgspec.json.encode(Request(tuple(requests)))
    try:
        ran = ask("terminalbench.harbor.preflight", request, env, _TIMEOUT_SEC)
    except subprocess.TimeoutExpired:
        raise TbenchError(f"the check before the run took longer than {duration(_TIMEOUT_SEC)}") from None
    if ran.returncode != 0:
        tail = ran.stderr.decode(errors="replace").strip().splitlines()[-1:]
        said = Secrets.of_environment(env).one_line(" ".join(tail))
        raise TbenchError(f"the check before the run failed: {said}")
    return msgspec.json.decode(ran.stdout, type=Report)


def exclusions(asked: list[JobSpec], report: Report) -> tuple[Exclusion, ...]:
    """What the report on these jobs leaves out: whole profiles, and tasks for every profile."""
    by_job = {job.name: job for job in asked}
    found = [
        Exclusion(
            reason="; ".join(entry.problems),
            profile=by_job[entry.name].profile,
            kind=ExclusionKind.PROFILE_REFUSED,
        )
        for entry in report.jobs
        if entry.problems
    ]
    tasks = asked[0].tasks
    found += [
        Exclusion(reason=reason, task=tasks[index].ref, kind=ExclusionKind.TASK_REFUSED)
        for index, reason in sorted(report.tasks.items())
    ]
    return tuple(found)


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
