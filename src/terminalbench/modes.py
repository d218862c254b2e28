"""Who may read what we make: this user alone (0600, 0700), unless `TERMINALBENCH_SHARED=1` leaves it to the umask.

What is there already keeps its mode: a folder of the user's is never changed.
"""

import contextlib
import os
import stat
import tempfile
from pathlib import Path

SHARED = "TERMINALBENCH_SHARED"
"""The variable that lets others read results, as far as the umask of the shell lets them."""


def private_mask() -> int:
    """Return what others are refused in what is made, on top of the umask: everything, or with `SHARED` nothing."""
    return 0 if os.environ.get(SHARED, "").lower() in ("1", "true", "yes", "on") else 0o077


def file_mode() -> int:
    """The mode of a new file, before the umask."""
    return 0o666 & ~private_mask()


def child_umask() -> int:
    """The umask of a process that writes results: ours, and what others are refused. -1: as it is."""
    return private_mask() or -1


def make_folder(path: Path, *, exist_ok: bool = True) -> None:
    """Make a folder, and those above it that are missing."""
    _make(path, 0o777 & ~private_mask(), exist_ok=exist_ok)


def make_project_folder(path: Path) -> None:
    """The same for a folder of a project, which people share: it has the mode that the umask gives it."""
    _make(path, 0o777, exist_ok=True)


def _make(path: Path, mode: int, *, exist_ok: bool) -> None:
    try:
        path.mkdir(mode, exist_ok=exist_ok)
    except FileNotFoundError:  # seldom: looking at each folder above for every file that is written costs more
        for above in reversed(path.parents):
            if not above.exists():
                above.mkdir(mode, exist_ok=True)
        path.mkdir(mode, exist_ok=exist_ok)


class NotOurs(OSError):
    """A folder that is there and that another user made, leads elsewhere or can change."""


def make_own_folder(path: Path) -> None:
    """Make a folder that only this user can change, or take the one that is there if it is such a folder.

    In a folder that others can write to, as /tmp, another could have laid it ready: with files in it that we would
    trust, or as a link to where we would write.
    """
    make_folder(path.parent)
    path.mkdir(0o700, exist_ok=True)
    above, found = path.parent.stat(), path.lstat()
    if stat.S_ISLNK(found.st_mode):
        if found.st_uid != os.geteuid() or _others_write(above):
            raise NotOurs(f"{path} is a link in a folder that others can write to")
        found = path.stat()
    if found.st_uid != os.geteuid():
        raise NotOurs(f"{path} belongs to another user")
    if _others_write(found):
        raise NotOurs(f"{path} can be written by other users")
    if _others_write(above) and not above.st_mode & stat.S_ISVTX:
        raise NotOurs(f"{path.parent} lets other users replace its files")


def _others_write(status: os.stat_result) -> bool:
    """Return whether another can write to a folder; the group of this user's own is no other."""
    return bool(status.st_mode & 0o002) or bool(status.st_mode & 0o020 and status.st_gid != os.getegid())


def user_cache() -> Path:
    """Return where what this user can make again is kept: as XDG_CACHE_HOME says, else in its home. It may be
    missing."""
    base = os.environ.get("XDG_CACHE_HOME") or None
    if base is not None:
        return Path(base) / "terminalbench"
    if os.access(Path.home(), os.W_OK):
        return Path.home() / ".cache" / "terminalbench"
    return Path(tempfile.gettempdir()) / f"terminalbench-{os.geteuid()}"


def make_file(path: Path) -> None:
    """Make an empty file where there is none, for a writer that would give it a mode of its own.

    It is not opened: closing it again would take from this process every lock it holds on it, those of SQLite too.
    """
    with contextlib.suppress(FileExistsError):
        os.mknod(path, stat.S_IFREG | file_mode())


def mode_of(path: Path) -> int | None:
    """The mode of a plain file; None where there is none."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return stat.S_IMODE(status.st_mode) if stat.S_ISREG(status.st_mode) else None
