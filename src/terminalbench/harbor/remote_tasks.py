"""Tasks of remote datasets, found by Harbor's registry client and brought here into Harbor's own cache.

Both load Harbor, so that they run in a process of their own (`harbor.answer`): a failure of one is data in its answer.
"""

from collections import Counter
from pathlib import PurePosixPath
from typing import Any

import msgspec

_MOST_CAUSES = 4


class DatasetTasks(msgspec.Struct, frozen=True):
    """The tasks of one dataset by id; or `problem` says why there are none."""

    tasks: dict[str, dict[str, Any]] = {}
    problem: str | None = None


def look_up(configs: list[dict[str, Any]]) -> list[DatasetTasks]:
    """Return, for each of Harbor's dataset configurations, its tasks by id as Harbor's `tasks[]` takes them."""
    import asyncio

    return [asyncio.run(_look_up(config)) for config in configs]


async def _look_up(config: dict[str, Any]) -> DatasetTasks:
    from harbor.models.job.config import DatasetConfig

    from terminalbench.secrets.values import safe_message

    try:
        dataset = DatasetConfig.model_validate({k: v for k, v in config.items() if k != "task_names"})
        tasks = await dataset.get_task_configs()
    except Exception as error:  # noqa: BLE001  a registry may fail in any way; the reason is the user's to read
        return DatasetTasks(problem=safe_message(causes(error)))
    return by_id(
        [t.model_dump(mode="json", exclude_none=True, exclude_defaults=True, exclude={"source"}) for t in tasks]
    )


def causes(error: BaseException) -> str:
    """An error and what it comes from: a client often says only that all its tries failed."""
    said = [f"{type(error).__name__}: {error}"]
    cause = error.__cause__ or error.__context__
    while cause is not None and len(said) < _MOST_CAUSES:
        if (text := str(cause)) and not any(text in one for one in said):
            said.append(f"{type(cause).__name__}: {text}")
        cause = cause.__cause__ or cause.__context__
    return "; from ".join(said)


def by_id(entries: list[dict[str, Any]]) -> DatasetTasks:
    """Tasks by id: the name of the folder or package; where several share it, the whole path or `org/name` of each."""
    places = [PurePosixPath(entry.get("path") or entry.get("name") or "") for entry in entries]
    shared = Counter(place.name for place in dict.fromkeys(places))
    found: dict[str, dict[str, Any]] = {}
    for place, entry in zip(places, entries, strict=True):
        task_id = place.name if shared[place.name] == 1 else str(place)
        if found.setdefault(task_id, entry) != entry:
            return DatasetTasks(problem=f'two of its tasks are called "{task_id}"')
    return DatasetTasks(tasks=found)


class DownloadedTask(msgspec.Struct, frozen=True):
    """A task that is here: its folder, and its description with the commit or digest that it has; or what is wrong."""

    folder: str | None = None
    config: dict[str, Any] = {}
    problem: str | None = None


def download(configs: list[dict[str, Any]]) -> list[DownloadedTask]:
    """Bring tasks here, as Harbor's `tasks[]` takes them, each at the commit or digest that it has now."""
    import asyncio

    return asyncio.run(_download(configs))


async def _download(configs: list[dict[str, Any]]) -> list[DownloadedTask]:
    found = await _each(configs)
    moved = [place for place, one in enumerate(found) if one.problem is None and one.config != configs[place]]
    for place, again in zip(moved, await _each([found[place].config for place in moved]), strict=True):
        found[place] = again  # Harbor keeps what is pinned in a place of its own
    return found


async def _each(configs: list[dict[str, Any]]) -> list[DownloadedTask]:
    """All at once, which clones a repository once; one by one if that fails, to say of which."""
    from terminalbench.secrets.values import safe_message

    try:
        return await _all(configs)
    except Exception as error:  # noqa: BLE001  a host may fail in any way; the reason is the user's to read
        if len(configs) == 1:
            return [DownloadedTask(problem=safe_message(causes(error)))]
    return [(await _each([config]))[0] for config in configs]


async def _all(configs: list[dict[str, Any]]) -> list[DownloadedTask]:
    from harbor.models.trial.config import TaskConfig
    from harbor.tasks.client import TaskClient

    tasks = [TaskConfig.model_validate(config) for config in configs]
    done = await TaskClient().download_tasks([task.get_task_id() for task in tasks])
    made = []
    for config, result in zip(configs, done.results, strict=True):
        pin: dict[str, Any] = {}
        if "git_url" in config and result.resolved_git_commit_id is not None:
            pin = {"git_commit_id": result.resolved_git_commit_id}
        elif "name" in config and result.content_hash is not None:
            pin = {"ref": f"sha256:{result.content_hash}"}
        made.append(DownloadedTask(str(result.path), {**config, **pin}))
    return made
