"""Who may read what we make: this user alone (0600, 0700), unless `TERMINALBENCH_SHARED=1` leaves it to the umask.

What is there already keeps its mode: a folder of the user's is never changed.
"""

import os
import stat
from pathlib import Path

SHARED = "TERMINALBENCH_SHARED"
"""The variable that lets others read results, as far as the umask of the shell lets them."""


def private_mask() -> int:
    """What others are refused in what is made, on top of the umask: everything, or with `SHARED` nothing."""
    return 0 if os.environ.get(SHARED, "").lower() in ("1", "true", "yes", "on") else 0o077


def file_mode() -> int:
    """The mode of a new file, before the umask."""
    return 0o666 & ~private_mask()


def child_umask() -> int:
    """The umask of a process that writes results: ours, and what others are refused. -1: as it is."""
    return private_mask() or -1


def make_folder(path: Path, *, exist_ok: bool = True) -> None:
    """Make a folder, and those above it that are missing."""
    for above in reversed(path.parents):
        if not above.exists():
            above.mkdir(0o777 & ~private_mask(), exist_ok=True)
    path.mkdir(0o777 & ~private_mask(), exist_ok=exist_ok)


def make_file(path: Path) -> None:
    """Make an empty file where there is none, for a writer that would give it a mode of its own."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, file_mode()))


def mode_of(path: Path) -> int | None:
    """The mode of a plain file; None where there is none."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return stat.S_IMODE(status.st_mode) if stat.S_ISREG(status.st_mode) else None
