"""Git LFS in a pinned worktree: the content of a file in place of its pointer, as the project has it.

Nothing is downloaded, and the program git-lfs is not needed: content is where git-lfs keeps it, or in the project, and
counts only if it is what the pointer names.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from terminalbench.errors import UserError
from terminalbench.files import read_plain
from terminalbench.runner.repository import git, lfs_files
from terminalbench.text.numbers import some

_POINTER = re.compile(rb"version https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*?oid sha256:([0-9a-f]{64})\n")
_POINTER_BYTES = 1024


@dataclass(frozen=True)
class LfsFiles:
    """The files that have their content, and those that are pointers in the project too."""

    files: list[str] = field(default_factory=list)
    pointers: list[str] = field(default_factory=list)


def fill(worktree: Path, top: Path, before: Collection[str] = ()) -> LfsFiles:
    """Put content in place of the pointers in a worktree of the project at `top`; what was filled `before` must be."""
    found = LfsFiles()
    store = Path(os.fsdecode(git(worktree, "rev-parse", "--git-common-dir").rstrip(b"\n"))) / "lfs" / "objects"
    for name in lfs_files(worktree):
        oid = _named_by(worktree / name)
        if oid is None:
            continue
        wanted = name in before or _named_by(top / name) is None
        places = (store / oid[:2] / oid[2:4] / oid, top / name)
        content = next((place for place in places if wanted and _is_object(place, oid)), None)
        if content is None:
            found.pointers.append(name)
        else:
            shutil.copyfile(content, worktree / name)
            found.files.append(name)
    lost = [name for name in before if name not in found.files]
    if lost:
        raise UserError(f"the content of {some(lost)} (Git LFS) is not there any more", where=str(top))
    return found


def _named_by(path: Path) -> str | None:
    """The object that a pointer names; None for any other file."""
    found = _POINTER.match(read_plain(path, _POINTER_BYTES) or b"")
    return found[1].decode() if found is not None else None


def _is_object(path: Path, oid: str) -> bool:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == oid
    except OSError:
        return False
