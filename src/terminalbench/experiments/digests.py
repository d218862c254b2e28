"""Digests of files by name: what a plan keeps of an agent's code and of a task, so that a change can be named."""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

DIGITS = 16
"""Hex digits of a digest: enough to tell files apart, short enough to keep thousands of them in a plan."""


def digests(files: Mapping[str, Path], most: int) -> dict[str, str]:
    """The digest of each file's bytes by its name; of whole folders (`a/b/`) where there are more names than `most`.

    Raises `OSError` for a file that cannot be read.
    """
    found = {name: _of_file(files[name]) for name in sorted(files)}
    depth = max((name.count("/") for name in found), default=0)
    while len(found) > most and depth:
        found, depth = _of_folders(found, depth), depth - 1
    return found if len(found) <= most else {"./": _of_names(found)}


def files_below(
    folder: Path, counts: Callable[[str], bool], passed: Callable[[str, list[str]], bool] = lambda *_: False
) -> Iterator[Path]:
    """The files below a folder whose names count, as the folders that lead there do; links are followed, none twice.

    A folder is `passed` over by its path and the names of its files. Raises `OSError` for a folder that cannot be read.
    """
    seen: set[str] = set()

    def refuse(error: OSError) -> None:
        raise error

    for place, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        real = os.path.realpath(place)
        if real in seen or passed(place, names):
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if counts(name))
        found = (Path(place, name) for name in names if counts(name))
        yield from (path for path in found if path.is_file() or path.is_symlink())  # a link to nothing is an error


def changed_names(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """The names whose digests differ, with a word on those that only one side has."""
    gone = [f"{name} is gone" for name in old if name not in new]
    return [*(name for name in new if old.get(name, new[name]) != new[name]), *gone,
            *(f"{name} is new" for name in new if name not in old)]  # fmt: skip


def _of_file(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:DIGITS]


def _of_names(found: Mapping[str, str]) -> str:
    return hashlib.sha256("".join(f"{name}\0{value}\n" for name, value in found.items()).encode()).hexdigest()[:DIGITS]


def _of_folders(found: Mapping[str, str], depth: int) -> dict[str, str]:
    """Names that lie `depth` folders deep, as one digest for each such folder."""
    folders: dict[str, dict[str, str]] = {}
    for name, value in found.items():
        parts = name.rstrip("/").split("/")
        short = name if len(parts) <= depth else "/".join(parts[:depth]) + "/"
        folders.setdefault(short, {})[name] = value
    return {short: inner[short] if [*inner] == [short] else _of_names(inner) for short, inner in folders.items()}
