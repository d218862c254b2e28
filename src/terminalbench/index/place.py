"""Where the index of a results root lies: in it, or somewhere else where the root cannot be written.

An archive, another user's folder or a read-only disk is read like any other. Its own index.db is used as it is while
nothing has to be written; then a copy of it, brought up to date, in this user's cache folder; where that cannot be
written either, an index in memory for as long as the process lives. Writing to a results root never ends up elsewhere:
who writes asks for the place in the root.
"""

import contextlib
import hashlib
import logging
import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

FILE_NAME = "index.db"
_SIDE_FILES = ("-wal", "-shm")
_READ_ONLY = "mode=ro"


@dataclass(frozen=True)
class Place:
    """A database: its file, None in memory. `fixed` is read as it is and never written; `name` is for people."""

    file: Path | None
    name: str
    fixed: bool = False

    def uri(self, *, reading: bool) -> str:
        """What SQLite opens."""
        if self.file is None:
            return f"file:/{self.name}?vfs=memdb"
        mode = f"{_READ_ONLY}&immutable=1" if self.fixed else _READ_ONLY if reading else "mode=rwc"
        return f"{self.file.as_uri()}?{mode}"

    def mark(self) -> tuple[object, ...]:
        """Changes when the file was deleted or replaced, or one that is read as it is has changed."""
        if self.file is None:
            return (self.name,)
        try:
            status = self.file.stat()
        except OSError:
            return (self.file, None)
        changes = (status.st_size, status.st_mtime_ns) if self.fixed else ()
        return (self.file, status.st_ino, *changes)


_lock = threading.Lock()
_elsewhere: dict[Path, Place] = {}
_seen_fit: dict[Path, tuple[int, int] | None] = {}
_kept_in_memory: dict[str, sqlite3.Connection] = {}


def can_be_written(results_root: Path) -> bool:
    """Whether the index can lie in the root. One that does not exist is made."""
    if not results_root.exists():
        return True
    file = results_root / FILE_NAME
    if not os.access(results_root, os.W_OK | os.X_OK) or file.is_dir():
        return False
    beside = [file, *(file.with_name(FILE_NAME + suffix) for suffix in _SIDE_FILES)]
    return not any(_is_shut(path) and _is_shut(path) for path in beside)  # twice: SQLite removes some at any moment


def _is_shut(path: Path) -> bool:
    return path.exists() and not os.access(path, os.R_OK | os.W_OK)


def place_of(results_root: Path, migrations: Collection[str], *, write: bool = False) -> Place:
    """Where the index of a root is to be found; with `write` a place that can be written, elsewhere if need be."""
    file = results_root / FILE_NAME
    if can_be_written(results_root):
        return Place(file.absolute(), str(file))
    root = results_root.resolve()
    with _lock:
        if root in _elsewhere:
            return _elsewhere[root]
        if not write and _usable_as_it_is(root / FILE_NAME, migrations):
            return Place(root / FILE_NAME, str(file), fixed=True)
        found = _in_cache(root, migrations) or _in_memory(root)
        _elsewhere[root] = found
    _say(results_root, found)
    return found


def into_memory(results_root: Path) -> Place:
    """Give up on a file elsewhere that turned out to be of no use."""
    with _lock:
        found = _elsewhere[results_root.resolve()] = _in_memory(results_root.resolve())
    _say(results_root, found)
    return found


def _say(results_root: Path, place: Place) -> None:
    why = f"{FILE_NAME} is a folder" if (results_root / FILE_NAME).is_dir() else "cannot be written"
    where = f"in {place.file.parent}" if place.file is not None else "in memory, for this process only"
    logging.getLogger(__name__).warning("%s: %s; its index is kept %s", results_root, why, where)


def _usable_as_it_is(file: Path, migrations: Collection[str]) -> bool:
    """Whether an index.db can be read though nothing can be written beside it: nobody writes it, and it is ours."""
    if not file.is_file() or _size(file.with_name(f"{FILE_NAME}-wal")) > 0:
        return False
    stamp = _stamp(file)
    if _seen_fit.get(file) != stamp:
        if _applied(Place(file, "", fixed=True).uri(reading=True)) != set(migrations):
            return False
        _seen_fit[file] = stamp
    return True


def _applied(uri: str) -> set[str] | None:
    """The migrations of a database; None: it is none, or none of ours."""
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            return {row[0] for row in connection.execute("SELECT name FROM migrations")}
    except sqlite3.Error:
        return None


def _in_cache(root: Path, migrations: Collection[str]) -> Place | None:
    """A file of this user's for this root and this version of the tables, begun with what the root's own index knows.

    None where there is no such folder to write to.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        cache = Path(base) if base.startswith("/") else Path.home() / ".cache"
        folder = cache / "terminalbench" / "index" / f"{_digest(root)}-{len(migrations)}"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = folder / FILE_NAME
        if not file.exists():
            _begin_with(root / FILE_NAME, file, migrations)
    except (OSError, RuntimeError):
        return None
    usable = os.access(folder, os.W_OK | os.X_OK) and (not file.exists() or os.access(file, os.W_OK))
    return Place(file, str(file)) if usable else None


def _begin_with(source: Path, target: Path, migrations: Collection[str]) -> None:
    """Copy an index with what has not been merged into it yet. One that changes meanwhile, or a newer one, is left."""
    if not source.is_file() or not os.access(source, os.R_OK):
        return
    wal = source.with_name(f"{FILE_NAME}-wal")
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        copied = Path(folder) / FILE_NAME
        before = [_stamp(source), _stamp(wal)]
        shutil.copyfile(source, copied)
        if wal.is_file():
            shutil.copyfile(wal, copied.with_name(wal.name))
        if before == [_stamp(source), _stamp(wal)] and _is_sound(copied, migrations):
            with contextlib.suppress(OSError):  # another process was first, or no links there: it is filled by a scan
                os.link(copied, target)


def _is_sound(file: Path, migrations: Collection[str]) -> bool:
    """Whether a copy is a whole database of this version or an older one. Merges what stands beside it."""
    try:
        with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
            if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                return False
    except sqlite3.Error:
        return False
    applied = _applied(file.as_uri())
    return applied is not None and applied.issubset(migrations)


def _in_memory(root: Path) -> Place:
    place = Place(None, f"tbench-{_digest(root)}")
    if place.name not in _kept_in_memory:  # it lives as long as somebody has it open
        uri = place.uri(reading=False)
        _kept_in_memory[place.name] = sqlite3.connect(uri, uri=True, check_same_thread=False)
    return place


def _digest(root: Path) -> str:
    return hashlib.blake2b(os.fsencode(root), digest_size=12).hexdigest()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_size, status.st_mtime_ns)
