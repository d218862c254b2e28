"""Paths that a person writes in the TOML: from the project root, `~` for home, and never a crash."""

import errno
import os
from pathlib import Path

from terminalbench.experiments.strict import Problems

_LONGEST_NAME = 255


def find_path(text: str, root: Path, at: str, problems: Problems) -> Path | None:
    """The path that `text` means, there or not; a problem is noted at `at` where no file can be called so."""
    try:
        path = root / Path(text).expanduser()
        _look_at(path)
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a path"
        problems.add(at, f"cannot be used as a path: {reason}")
        return None
    return path


def _look_at(path: Path) -> None:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        if any(len(os.fsencode(part)) > _LONGEST_NAME for part in path.parts):
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG)) from None


def is_file(path: Path) -> bool:
    """Whether there is a file; False too where the system does not say (no permission, a name too long)."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: Path) -> bool:
    """Whether there is a folder; False too where the system does not say."""
    return os.path.isdir(path)  # noqa: PTH112
