"""Tasks of remote datasets: looked up, brought here and pinned before the first trial; offline, as they were last."""

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from terminalbench.errors import TbenchError, UserError, did_you_mean
from terminalbench.experiments.plan import JobSpec, Plan, PlannedTask
from terminalbench.harbor.download import DownloadedTask
from terminalbench.harbor.lookup import DatasetTasks
from terminalbench.json_files import read_json, write_json
from terminalbench.modes import user_cache
from terminalbench.records.trial import TaskRef
from terminalbench.runner.executors.local import ask
from terminalbench.text.numbers import plural

_LOOKUP, _DOWNLOAD = "terminalbench.harbor.lookup", "terminalbench.harbor.download"
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
