"""Reading below the results root without ever leaving it: no link is followed at any level, no pipe is waited for."""

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from terminalbench.dashboard.frame import NotFound, OpenFile
from terminalbench.secrets.values import Secrets

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LISTED = 500
_MARGIN = 8192
_DEPTH = 8


@dataclass(frozen=True)
class TrialFile:
    """A file of a trial: its path below the trial's folder, and its size; `odd` says why it cannot be opened."""

    path: str
    size: int
    odd: str | None = None


def open_below(root: Path, names: Sequence[str]) -> OpenFile:
    """The plain file that `names` lead to from `root`. Raises NotFound for anything else, links included."""
    if not names or any(name in ("", ".", "..") or "/" in name or "\0" in name for name in names):
        raise NotFound("no such file")
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names[:-1]:
            inner = os.open(name, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        handle = os.open(names[-1], _FILE, dir_fd=folder)
    except OSError:
        raise NotFound("no such file, or a link") from None
    finally:
        os.close(folder)
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise NotFound("not a plain file")
    return OpenFile(handle, status.st_size)


@dataclass(frozen=True)
class Excerpt:
    """The end of a file as text; `missing` bytes stand before it."""

    text: str
    size: int
    missing: int


def read_tail(root: Path, names: Sequence[str], limit: int, secrets: Secrets) -> Excerpt | None:
    """The last `limit` bytes of a file as text, concealed; None when there is no such plain file."""
    try:
        opened = open_below(root, names)
    except NotFound:
        return None
    with os.fdopen(opened.handle, "rb") as stream:
        missing = max(0, opened.size - limit)
        start = max(0, missing - _MARGIN)  # a secret that is cut in two is no longer found
        stream.seek(start)
        before, data = stream.read(missing - start), stream.read(limit)
    text = secrets.conceal((before + data).decode("utf-8", "replace"))
    return Excerpt(text[-len(data.decode("utf-8", "replace")) :] if before else text, opened.size, missing)


def list_files(folder: Path) -> tuple[list[TrialFile], bool]:
    """The files below a folder, sorted, no link followed; and whether there are more than are listed."""
    found: list[TrialFile] = []
    for entry in _walk(folder, "", 0):
        if len(found) == _LISTED:
            return found, True
        found.append(entry)
    return found, False


def _walk(folder: Path, prefix: str, depth: int) -> Iterator[TrialFile]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in names:
        path = f"{prefix}{entry.name}"
        if entry.is_symlink():
            yield TrialFile(path, 0, "a link: not followed")
        elif entry.is_dir(follow_symlinks=False):
            if depth < _DEPTH:
                yield from _walk(Path(entry.path), f"{path}/", depth + 1)
            else:
                yield TrialFile(f"{path}/", 0, "too deep: not listed")
        elif entry.is_file(follow_symlinks=False):
            try:
                size = entry.stat(follow_symlinks=False).st_size
            except OSError:
                continue
            yield TrialFile(path, size)
        else:
            yield TrialFile(path, 0, "not a plain file")
