"""Folders that a process has on its Python path before those of another: a project's own agents are found there."""

import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

_AT_START = {"sitecustomize", "usercustomize"}
"""Modules that Python loads by itself when it starts."""


def added_folders(asked: str, own: str) -> list[str] | None:
    """The folders that the path `asked` has before all of `own`; None where it is not `own` with folders before it."""
    if asked == own:
        return []
    before = asked.removesuffix(os.pathsep + own) if own else asked
    folders = before.split(os.pathsep)
    return folders if before != asked or not own else None


def why_not_added(folder: str) -> str | None:
    """Return why a process that has loaded its modules would be another with a folder before all on its path."""
    if not Path(folder).is_absolute():
        return f"the folder {folder!r} on Python's path is not absolute"
    if any(Path(folder).glob("*.*-info")):
        return f"packages are installed in {folder}"
    for name in {name.partition(".")[0] for name in sys.modules} | _AT_START:
        found = PathFinder.find_spec(name, [folder])
        if found is not None and found.loader is not None:
            return f"a module {name} of its own in {folder}"
    return None


def add_folders(folders: list[str]) -> None:
    """Put folders before all on the path of this process, as if it had been started with them."""
    first = [os.path.abspath(folder) for folder in folders]  # noqa: PTH100  as Python does at its start
    for folder in first:
        sys.path_importer_cache.pop(folder, None)  # what `why_not_added` saw there
    sys.path[:] = [*dict.fromkeys(first), *(folder for folder in sys.path if folder not in first)]
