"""The files that an experiment names by a path: those that a pin of its code holds, and those that no pin can hold."""

import json
from collections.abc import Iterator
from pathlib import Path

from terminalbench.experiments.agent_code import code_place, is_released
from terminalbench.experiments.experiment import Experiment
from terminalbench.experiments.profiles import Profile
from terminalbench.registry import is_import_path
from terminalbench.runner.worktree import CodePin, NamedFiles
from terminalbench.starter import TASKS_DIR


def named_files(experiment: Experiment) -> NamedFiles:
    """Return what a pin holds of an experiment, even if git ignores it: treatments copied, env files and tasks linked.

    Tasks are data, often much of it; a batch has their digests, and tells of a change.
    """
    copied = [
        experiment.file.resolve(),
        *(path for p in experiment.profiles for path in _treatment(p, experiment.root)),
    ]
    env_files = [p.env_file for p in experiment.profiles if p.env_file is not None]
    return NamedFiles(tuple(dict.fromkeys(copied)), tuple(dict.fromkeys([*env_files, *_task_folders(experiment)])))


def unpinned(experiment: Experiment, pin: CodePin) -> list[str]:
    """A line for each thing that an experiment, loaded from its pin, reads elsewhere: an edit of it is not kept out."""
    return list(dict.fromkeys(_unpinned(experiment, pin)))


def _unpinned(experiment: Experiment, pin: CodePin) -> Iterator[str]:
    folder, source = Path(pin.folder), pin.source
    for profile in experiment.profiles:
        at = f'profile "{profile.key}"'
        for path in _treatment(profile, experiment.root):
            if not path.resolve().is_relative_to(folder):
                yield f"{at}: {path} is outside the project, so it is not pinned"
        if profile.env_file is not None:
            real = profile.env_file.resolve()
            yield f"{at}: variables are read from {real} when each trial starts"
        for code in _import_paths(profile, experiment):
            place = code_place(code, experiment.root)
            if place is not None and place.is_relative_to(source) and not place.is_relative_to(folder):
                yield f"{at}: {code} is imported from {place}, which is not the pinned code"
        for what, value in (("an MCP server", profile.mcp.servers), ("a hook", profile.hooks_config())):
            if source in json.dumps(value, ensure_ascii=False).replace(str(folder), ""):  # it may lie below the source
                yield f"{at}: {what} names a path in {source}, which is not the pinned code"
    for tasks in _task_folders(experiment):
        if not tasks.resolve().is_relative_to(folder):
            yield f"tasks are read from {tasks.resolve()}; a batch reports when one of them changes"


def _treatment(profile: Profile, root: Path) -> Iterator[Path]:
    """The files and folders that a profile names."""
    yield from (part.path for part in (profile.prompt, *profile.usage, profile.hooks) if part is not None)
    yield from (folder.path for folder in profile.skills)
    yield from profile.mcp.folders.values()
    if profile.workflow is not None and not profile.workflow.shipped:
        yield profile.workflow.path
        inner = (profile.workflow.path.parent / name for name in profile.workflow.texts)
        yield from (path for path in inner if path.is_file())
    yield from (one.path for one in profile.command.files) if profile.command is not None else ()
    yield from (one.source for one in profile.mounts)
    for value in profile.options.values():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and text and (root / text).exists() and (root / text) != root:
                yield root / text


def _task_folders(experiment: Experiment) -> list[Path]:
    found = (dataset.folder for dataset in experiment.datasets.values())
    return [folder for folder in found if folder is not None and folder != TASKS_DIR]


def _import_paths(profile: Profile, experiment: Experiment) -> list[str]:
    """The classes of one's own that a profile runs: agent, guards, environment."""
    guards = profile.workflow.guards if profile.workflow is not None else ()
    named = (profile.agent.import_path, *guards, experiment.run.container_env)
    return [path for path in named if path is not None and is_import_path(path) and not is_released(path)]
