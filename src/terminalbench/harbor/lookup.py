"""Finding the tasks of a remote dataset: asked of Harbor's registry client, in a process of its own.

`python -m terminalbench.harbor.lookup` reads a list of Harbor dataset configurations from standard input and
writes, for each, its tasks by id as Harbor's `tasks[]` takes them, or why they could not be found.
"""

import sys
from collections import Counter
from pathlib import PurePosixPath
from typing import Any

import msgspec

from terminalbench.harbor.answer import answer

_MOST_CAUSES = 4


class DatasetTasks(msgspec.Struct, frozen=True):
    """The tasks of one dataset by id; or `problem` says why there are none."""

    tasks: dict[str, dict[str, Any]] = {}
    problem: str | None = None


async def look_up(config: dict[str, Any]) -> DatasetTasks:
    """The tasks of one dataset."""
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


def main() -> int:
    """Answer one question."""
    import asyncio

    return answer(list[dict[str, Any]], lambda configs: [asyncio.run(look_up(config)) for config in configs])


if __name__ == "__main__":
    sys.exit(main())
