"""Bringing tasks of remote datasets here: by Harbor's own client, into Harbor's own cache, in a process of its own.

`python -m terminalbench.harbor.download` reads a list of tasks as Harbor's `tasks[]` takes them from standard input
and writes, for each, the folder that it is in now and what it is pinned to, or why it could not be had.
"""

import sys
from typing import Any

import msgspec

from terminalbench.harbor.answer import answer
from terminalbench.harbor.lookup import causes


class DownloadedTask(msgspec.Struct, frozen=True):
    """A task that is here: its folder, and its description with the commit or digest that it has; or what is wrong."""

    folder: str | None = None
    config: dict[str, Any] = {}
    problem: str | None = None


async def download(configs: list[dict[str, Any]]) -> list[DownloadedTask]:
    """Bring tasks here, each at the commit or digest that it has now."""
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


def main() -> int:
    """Answer one question."""
    import asyncio

    return answer(list[dict[str, Any]], lambda configs: asyncio.run(download(configs)))


if __name__ == "__main__":
    sys.exit(main())
