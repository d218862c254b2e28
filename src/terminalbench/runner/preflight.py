"""Before the first trial: remote tasks are found, Harbor is asked what would go wrong, what cannot run is left out.

Tasks of remote datasets are looked up, brought here and pinned; offline, as they were last.
"""

import hashlib
import json
import os
import resource
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.errors import TbenchError, UserError, did_you_mean
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.experiment import Experiment
from terminalbench.experiments.plan import Exclusion, ExclusionKind, JobSpec, Plan, PlannedTask, exclusion_lines
from terminalbench.experiments.profiles import Profile
from terminalbench.experiments.tables import DEFAULT_ENV_FILE
from terminalbench.harbor.jobs import job_config
from terminalbench.harbor.preflight import JobRequest, PreflightReport, PreflightRequest
from terminalbench.harbor.remote_tasks import DatasetTasks, DownloadedTask
from terminalbench.json_files import read_json, write_json
from terminalbench.modes import user_cache
from terminalbench.records.trial import TaskRef
from terminalbench.runner.changes import with_task_files, with_values
from terminalbench.runner.environment import child_environment, declared_variables, named_variables
from terminalbench.runner.executors.local import ask
from terminalbench.runner.images import build_notes, image_books, to_run, with_builds, with_images
from terminalbench.runner.provenance import source_problem
from terminalbench.text.numbers import plural

MINIMUM_FREE_FILES = 4096
"""A disk that can hold fewer files more is full, whatever room it has."""
LONGEST_ROOT = 3000
"""Bytes of a results root: the kernel takes paths of 4095, and what a trial leaves lies deep."""
FILES_OF_A_RUN, FILES_OF_A_TRIAL = 256, 64
"""Open files that a Harbor process needs: for itself, and for each trial that runs in it."""
MINIMUM_FREE_MB = 512
"""Less than this, and nothing is started."""
LOWEST_FREE_MB = 64
"""Less than this while trials run, and they are ended while there is still room to record them."""
_CHECK_SEC = 900


@dataclass(frozen=True)
class PreparedPlan:
    """A plan with everything found out, and what each profile's Harbor process needs."""

    plan: Plan
    profiles: dict[str, Profile]
    environments: dict[str, dict[str, str]]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PreflightCheck:
    """Harbor's answer on jobs: those that cannot run, and notes."""

    excluded: tuple[Exclusion, ...]
    notes: tuple[str, ...] = ()


def prepare(
    experiment: Experiment,
    plan: Plan,
    shell: Mapping[str, str],
    tell: Callable[[str], None] = lambda _text: None,
    *,
    build: bool = True,
    strict: bool = False,
) -> PreparedPlan:
    """Find remote tasks, have the images of all, and ask Harbor what would go wrong. Raises when nothing could run.

    `tell` is called with a line on what takes long. With `build`, the images of the tasks are built. With `strict`,
    what would be left out is an error.
    """
    profiles = {profile.key: profile for profile in experiment.profiles}
    plan, notes = with_remote_tasks(plan, shell, tell)
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
    books = image_books(plan, to_run(plan), experiment.root, shell, tell)
    plan = with_images(plan, books)
    notes = [*notes, *books.notes()]
    asked = [runnable for job in plan.jobs if (runnable := plan.runnable(job)).tasks]
    if not asked:
        if strict:
            refuse_left_out(plan.excluded, str(experiment.file))
        return PreparedPlan(plan, profiles, environments, tuple(notes))
    batch = Batch(experiment.results_root / plan.slug / str(plan.batch))
    requests = [
        JobRequest(
            job.name,
            job_config(experiment, profiles[job.profile], job, batch, plan.images),
            environments[job.profile],
            tuple(experiment.run.harbor_args),
            str(profiles[job.profile].env_file or experiment.root / DEFAULT_ENV_FILE),
            declared_variables(named_variables(profiles[job.profile]), profiles[job.profile].env_file),
        )
        for job in asked
    ]
    found = check_jobs(asked, requests, experiment.run.container_env)
    plan = with_task_files(msgspec.structs.replace(plan, excluded=(*plan.excluded, *found.excluded)))
    plan = with_values(plan, environments)
    if strict:
        refuse_left_out(plan.excluded, str(experiment.file))
    if build:
        plan, _departures = with_builds(plan, to_run(plan), books, experiment.root, shell, tell)
    return PreparedPlan(plan, profiles, environments, (*notes, *found.notes, *build_notes(plan)))


def ask_harbor(requests: list[JobRequest]) -> PreflightReport:
    """Check the jobs in a process that imports Harbor; this one does not."""
    function, what = "terminalbench.harbor.preflight:check", "the check before the run"
    return ask(function, PreflightRequest(tuple(requests)), PreflightReport, requests[0].env, _CHECK_SEC, what)


def check_jobs(asked: list[JobSpec], requests: list[JobRequest], container_env: str) -> PreflightCheck:
    """Return what Harbor says of these jobs cannot run: whole profiles, and tasks for every profile.

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
    return PreflightCheck((*refused, *tasks), report.notes)


def known_problems(profiles: Iterable[tuple[str, Mapping[str, Any], str | None]]) -> Iterator[Exclusion]:
    """The profiles that cannot run, without asking Harbor: each by its key, its content and its pinned MCP commit."""
    for key, content, ref in profiles:
        source = content.get("mcp_git_source")
        if source is not None and (problem := source_problem(source, ref)) is not None:
            yield profile_refused(key, problem)


def profile_refused(profile: str, reason: str) -> Exclusion:
    """A profile that cannot run."""
    return Exclusion(reason, profile=profile, kind=ExclusionKind.PROFILE_REFUSED)


def refuse_if_nothing_is_left(plan: Plan, where: str) -> None:
    """A run without a single trial is a mistake: say everything that is wrong."""
    if any(plan.runnable(job).tasks for job in plan.jobs):
        return
    raise UserError("nothing can run:\n  " + "\n  ".join(exclusion_lines(plan.excluded)), where=where)


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
    counts = os.statvfs(folder)
    if counts.f_files and counts.f_favail < MINIMUM_FREE_FILES:
        raise UserError(
            f"only {plural(counts.f_favail, 'more file')} can be created there (it has no free inodes); a run needs "
            f"at least {MINIMUM_FREE_FILES}",
            where=str(folder),
            hint="remove files that are not needed, or choose another run.results_root",
        )


def refuse_a_long_root(folder: Path, file: Path) -> None:
    """Refuse a folder whose path is so long that what a trial writes below it could not be opened."""
    path = os.path.abspath(folder)  # noqa: PTH100  no link is followed
    longest = max(len(os.fsencode(part)) for part in path.split("/"))
    if len(os.fsencode(path)) > LONGEST_ROOT or longest > 255:
        what = f"its path has {len(os.fsencode(path))} bytes; the limit is {LONGEST_ROOT}, and 255 for each folder name"
        raise UserError(
            f"run.results_root is too long: {what}", where=str(file), hint="name a folder with a short path"
        )


def allow_open_files(parallel: int) -> None:
    """Let this process and those that it starts open as many files as so many trials need; an error if it may not."""
    needed = FILES_OF_A_RUN + FILES_OF_A_TRIAL * parallel
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise UserError(
            f"a process can open at most {hard} files on this machine, but a run with {plural(parallel, 'trial')} at "
            f"once needs {needed}",
            where="run.parallel",
            hint=f"raise the limit (ulimit -n {needed}, or LimitNOFILE), or lower run.parallel",
        )
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def refuse_unwritable_results(folder: Path, file: Path) -> None:
    """Make and remove a folder where results go: what cannot be written is found before anything is checked."""
    place = folder
    while not place.exists() and place.parent != place:
        place = place.parent
    probe = place / f".tbench-{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        raise UserError(
            f"run.results_root: cannot write results to {folder}: {error.strerror}",
            where=str(file),
            hint="name another folder in results_root of [run]",
        ) from error


def disk_is_full(folder: Path) -> str | None:
    """Return why trials that write to `folder` have to end now, or None while there is room."""
    free = free_mb(folder)
    if free is None or free >= LOWEST_FREE_MB:
        return None
    return f"the disk is full: {free} MB are free in {folder}, and recording trials needs {LOWEST_FREE_MB} MB"


def free_mb(folder: Path) -> int | None:
    """Return what is free on the disk of a folder; None when the file system does not say."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None
    return usage.free // (1024 * 1024) if usage.total else None


def refuse_left_out(excluded: Sequence[Exclusion], where: str) -> None:
    """Refuse, with `--strict`, to run less than everything."""
    if excluded:
        reasons = "\n  ".join(exclusion_lines(excluded))
        raise UserError(f"--strict refuses this run, because it would leave out:\n  {reasons}", where=where)


_LOOKUP, _DOWNLOAD = "terminalbench.harbor.remote_tasks:look_up", "terminalbench.harbor.remote_tasks:download"
_LOOKUP_SEC, _DOWNLOAD_SEC = 300, 3600
_NEEDS_NETWORK = "it needs the network; the dataset starter and local folders do not"


class _KnownDataset(msgspec.Struct, frozen=True):
    """A dataset as it was found last."""

    found: DatasetTasks
    looked_up_at: str


def with_remote_tasks(
    plan: Plan, shell: Mapping[str, str], tell: Callable[[str], None] = lambda _text: None
) -> tuple[Plan, list[str]]:
    """Every task with its place and its folder, in the order of the file; and what is to be said of that."""
    plan, notes = _looked_up(plan, shell)
    away = {task.ref: task for job in plan.jobs for task in job.tasks if _is_away(task)}
    if not away:
        return plan, notes
    tell(f"fetching {plural(len(away), 'task')} from other machines")
    configs = [task.config for task in away.values()]
    answers = ask(_DOWNLOAD, configs, list[DownloadedTask], shell, _DOWNLOAD_SEC, "fetching the tasks")
    brought: dict[TaskRef, DownloadedTask] = dict(zip(away, answers, strict=True))
    for ref, answer in brought.items():
        if answer.problem is not None:
            what = f"could not be fetched: {answer.problem}"
            raise UserError(what, where=f"task {ref.id}", hint=_NEEDS_NETWORK)
    return _replaced(plan, lambda task: _brought(task, brought[task.ref]) if task.ref in brought else task), notes


def _is_away(task: PlannedTask) -> bool:
    remote = "git_url" in task.config or "name" in task.config
    return remote and (task.folder is None or not Path(task.folder, "task.toml").is_file())


def _brought(task: PlannedTask, answer: DownloadedTask) -> PlannedTask:
    return msgspec.structs.replace(task, config=answer.config, folder=answer.folder)


def _replaced(plan: Plan, change: Callable[[PlannedTask], PlannedTask]) -> Plan:
    def changed(job: JobSpec) -> JobSpec:
        return msgspec.structs.replace(job, tasks=tuple(map(change, job.tasks)))

    return msgspec.structs.replace(plan, jobs=tuple(map(changed, plan.jobs)))


def _looked_up(plan: Plan, shell: Mapping[str, str]) -> tuple[Plan, list[str]]:
    """Every task with its place: remote datasets are asked once each."""
    wanted = {task.label: task for job in plan.jobs for task in job.tasks if not task.found}
    if not wanted:
        return plan, []
    configs = [{k: v for k, v in task.config.items() if k != "task_names"} for task in wanted.values()]
    answers = ask(_LOOKUP, configs, list[DatasetTasks], shell, _LOOKUP_SEC, "looking up the tasks")
    found: dict[str, DatasetTasks] = {}
    notes = []
    for (label, task), config, answer in zip(wanted.items(), configs, answers, strict=True):
        file = user_cache() / "datasets" / f"{hashlib.sha256(json.dumps(config).encode()).hexdigest()[:32]}.json"
        if answer.problem is None:
            write_json(file, _KnownDataset(answer, datetime.now(UTC).isoformat(timespec="seconds")))
            found[label] = answer
            continue
        known = _known(file)
        if known is None:
            what = f"its tasks could not be looked up: {answer.problem}"
            raise UserError(what, where=f"dataset {task.ref.dataset}", hint=_NEEDS_NETWORK)
        found[label] = known.found
        notes.append(
            f"dataset {task.ref.dataset} is used as found on {known.looked_up_at}, because its tasks could "
            f"not be looked up: {answer.problem}"
        )
    return _replaced(plan, lambda task: task if task.found else _found(task, found[task.label])), notes


def _known(file: Path) -> _KnownDataset | None:
    try:
        return read_json(file, _KnownDataset)
    except (FileNotFoundError, TbenchError):  # never found, or cut off: as if it had not been
        return None


def _found(task: PlannedTask, answer: DatasetTasks) -> PlannedTask:
    if task.ref.id not in answer.tasks:
        raise UserError(
            f'has no task "{task.ref.id}"',
            where=f"dataset {task.ref.dataset}",
            hint=did_you_mean(task.ref.id, list(answer.tasks)),
        )
    return msgspec.structs.replace(task, config=answer.tasks[task.ref.id], found=True)
