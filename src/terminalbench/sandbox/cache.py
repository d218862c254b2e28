"""What sandboxes keep on this machine, and the removal of what dead ones left behind.

<cache>/terminalbench/sandbox-<uid>/
  run/<name>/          one per running sandbox, with run/<name>.lock held by its guardian
  base/<kind>-<hash>/  the host's system as sandboxes see it, with `lock`
  layers/<hash>/       one per built Dockerfile: meta.json, 0/ 1/ ... (a folder per overlay), `lock`
  layers/<hash>.lock   held while that layer is built
  building/<name>/     a layer being built, with building/<name>.lock
  volumes/<name>/      what the services of one trial share, with volumes/<name>.lock
"""

import contextlib
import fcntl
import itertools
import os
import secrets
import shutil
import threading
import time
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from terminalbench.frozen import frozen
from terminalbench.json_files import decode_plain, write_json
from terminalbench.modes import NotOurs, make_own_folder, user_cache
from terminalbench.sandbox.errors import SandboxError

KEEP_FREE_BYTES = 512 << 20
MAKE_ROOM = "free some space there, run tbench images prune, or set XDG_CACHE_HOME to a larger disk"
LAYER_DAYS = 30
_GROUP_PATIENCE_SEC = 1.0
_counter = itertools.count(1)
_collecting = threading.Lock()
_collected = False

_PAUSE_SEC = 0.02
_RECORD_BYTES = 1 << 20


def root() -> Path:
    """The cache folder of this user, private to it."""
    above = user_cache()
    folder = above / f"sandbox-{os.geteuid()}"
    try:
        for place in (above, folder):
            make_own_folder(place)
    except NotOurs as error:
        raise SandboxError(str(error), hint="set XDG_CACHE_HOME to a folder that you own") from error
    except OSError as error:
        raise SandboxError(
            f"cannot make {folder}: {error.strerror}", hint="set XDG_CACHE_HOME to a writable folder"
        ) from error
    return folder


@frozen
class ClaimedFolder:
    """A folder of ours with its locked lock file; the folder lives while a process holds `lock` open."""

    folder: Path
    lock: int


def claim(kind: str) -> ClaimedFolder:
    """A new empty folder below `kind` that the collector leaves alone while its lock is held."""
    parent = root() / kind
    parent.mkdir(exist_ok=True)
    while True:
        folder = parent / f"{os.getpid()}-{next(_counter)}-{secrets.token_hex(3)}"
        lock = os.open(_lock_file(folder), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_SH)
        if os.fstat(lock).st_nlink:  # else a collector took it for a leftover before we held it
            folder.mkdir()
            return ClaimedFolder(folder, lock)
        os.close(lock)


def release(claimed: ClaimedFolder) -> None:
    """Remove what is left of a claimed folder, and its lock; what does not go yet is left to the collector."""
    try:
        if not claimed.folder.exists():
            _lock_file(claimed.folder).unlink(missing_ok=True)
        elif _remove_groups(claimed.folder) is not None:
            _remove(claimed.folder)
    finally:
        os.close(claimed.lock)


def keep(folder: Path) -> int | None:
    """Hold a published layer or base against the collector, as used just now, until the answer is closed.

    None when there is none, or no longer.
    """
    try:
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    fcntl.flock(lock, fcntl.LOCK_SH)
    if not os.fstat(lock).st_nlink:  # a collector had it first
        os.close(lock)
        return None
    os.utime(lock)
    return lock


def _lock_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


@frozen
class CollectedGarbage:
    """How much garbage was removed."""

    sandboxes: int = 0
    groups: int = 0
    builds: int = 0
    layers: int = 0


def collect_leftovers() -> CollectedGarbage:
    """Remove what dead sandboxes left: folders, control groups, unfinished builds, layers unused for a month."""
    sandboxes = groups = builds = layers = 0
    for folder in _dead(root() / "run"):
        gone = _remove_groups(folder)
        if gone is not None:
            groups += gone
            sandboxes += _remove(folder)
    for kind in ("building", "volumes"):
        for folder in _dead(root() / kind):
            builds += _remove(folder)
    long_ago = time.time() - LAYER_DAYS * 86400
    for folder in _published():
        layers += remove_unused(folder, long_ago)
    for file in (*(root() / "layers").glob("*.failed"), *(root() / "logs").glob("*.log")):
        with contextlib.suppress(FileNotFoundError):
            if file.stat().st_mtime < long_ago:
                file.unlink()
    for kind in ("layers", "base"):
        for folder in (root() / kind).glob("*.??????"):  # set aside, and its removal was cut short
            if folder.is_dir() and not (folder / "lock").exists():
                layers += _remove(folder)
    return CollectedGarbage(sandboxes, groups, builds, layers)


def collect_once() -> None:
    """Clean up after dead sandboxes, once per process; every start of a sandbox waits until it is done."""
    global _collected
    with _collecting:
        if not _collected:
            try:
                collect_leftovers()
            finally:
                _collected = True


def _dead(parent: Path) -> Iterator[Path]:
    """Claimed folders whose lock no process holds. We hold it until the next one is asked for.

    So a folder that is being claimed right now is not taken for one that was left: the process that waits for its lock
    finds the file removed, and claims another.
    """
    for lock_file in sorted(parent.glob("*.lock")):
        with _locked(lock_file) as free:
            folder = lock_file.with_suffix("")
            if free and folder.exists():
                yield folder
            elif free:
                lock_file.unlink(missing_ok=True)


def _published() -> Iterator[Path]:
    """Layers and bases."""
    for mark in sorted((root() / "layers").glob("*/lock")):
        yield mark.parent
    for mark in sorted((root() / "base").glob("*/root")):
        if not (mark.parent / "lock").exists():  # made by a version that gave bases none
            with contextlib.suppress(FileNotFoundError):
                (mark.parent / "lock").touch()
        yield mark.parent


def no_room() -> str | None:
    """Return that the disk of the cache is nearly full, and what can be done; None while there is room."""
    free = shutil.disk_usage(root()).free
    if free >= KEEP_FREE_BYTES:
        return None
    return f"only {free >> 20} MB are free in {root()} ({MAKE_ROOM})"


def remove_unused(folder: Path, before: float) -> int:
    """Remove a layer or base that nobody holds and that was last used before a time: how many went.

    It is set aside first, so that half of it is never opened.
    """
    with _locked(folder / "lock") as free:
        try:
            if not free or (folder / "lock").stat().st_mtime >= before:
                return 0
            aside = folder.rename(folder.with_name(f"{folder.name}.{secrets.token_hex(3)}"))
        except FileNotFoundError:  # another process was faster
            return 0
        removed = _remove(aside)
    with _locked(_lock_file(folder)) as free:
        if free:  # no process builds it anew
            _lock_file(folder).unlink(missing_ok=True)
    return removed


@contextlib.contextmanager
def _locked(path: Path) -> Generator[bool]:
    """Hold a lock file; or False: another process does, or it is gone."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


def _remove(folder: Path) -> int:
    from terminalbench.sandbox.helper import helper  # only those who remove something need it

    left = helper().ask({"op": "remove", "paths": [str(folder)]})["left"]
    if not left:
        _lock_file(folder).unlink(missing_ok=True)
    return 0 if left else 1


def _remove_groups(folder: Path) -> int | None:
    """Remove the control groups that a sandbox's folder names: how many there were, None if they are still in use."""
    try:
        names = (folder / "groups").read_text().splitlines()
    except FileNotFoundError:
        return 0
    there = {name: name for name in names if os.path.lexists(name)}
    from terminalbench.sandbox.engine.cgroups import ControlGroup

    return len(there) if ControlGroup(folders=there).remove(_GROUP_PATIENCE_SEC) else None


@contextlib.asynccontextmanager
async def exclusive(path: Path) -> AsyncGenerator[None]:
    """Hold a lock file; waiting can be cancelled."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            await _lock(handle)
            if os.fstat(handle).st_nlink:  # else a collector took it for one of something that is gone
                yield
                return
        finally:
            os.close(handle)


async def _lock(handle: int) -> None:
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            import asyncio

            await asyncio.sleep(_PAUSE_SEC)


async def to_its_end[T](work: Callable[[], T]) -> T:
    """Return what work in a thread returns. A cancel is raised when it has ended: nothing can stop it half-way."""
    import asyncio

    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise


class LayerNote(msgspec.Struct, frozen=True):
    """What a layer was built for: the image that it begins with, its last instruction, and when.

    `base` is what that image was taken from. `size` are its bytes; None where not all of its files can be seen.
    """

    image: str
    text: str
    built_at: str
    seconds: float
    base: str = ""
    size: int | None = None


@dataclass(frozen=True)
class BuiltLayer:
    """A layer of this machine."""

    folder: Path
    note: LayerNote
    used_at: float


def read_note(folder: Path) -> LayerNote | None:
    """Return what a layer was built for; None where there is no whole layer."""
    return decode_plain(folder / "meta.json", LayerNote, _RECORD_BYTES)


def built_layers() -> list[BuiltLayer]:
    """Return the layers of this machine, the one used last first."""
    found = []
    for lock in (root() / "layers").glob("*/lock"):
        if (note := read_note(lock.parent)) is not None:
            found.append(BuiltLayer(lock.parent, note, lock.stat().st_mtime))
    return sorted(found, key=lambda one: one.used_at, reverse=True)


def prune_layers(bases: Collection[str] | None, unused_days: float, *, dry: bool) -> list[BuiltLayer]:
    """Remove layers that begin with one of `bases`, else those not used for so long; what a process uses stays."""
    before = time.time() - (unused_days * 86400 if bases is None else 0.0)
    wanted = [one for one in built_layers() if one.used_at < before and (bases is None or one.note.base in bases)]
    return [one for one in wanted if dry or remove_unused(one.folder, before)]


def publish_layer(folder: Path, name: str, note: LayerNote) -> Path:
    """Make a layer of what was built in a claimed folder, in one step; return where it is."""
    extra = [*folder.glob("work*"), *folder.glob("mount*")]
    from terminalbench.sandbox.helper import helper

    helper().ask({"op": "remove", "paths": [str(path) for path in extra]})
    (folder / "lock").touch()
    write_json(folder / "meta.json", msgspec.structs.replace(note, size=size_of(folder)))
    target = root() / "layers" / name
    target.parent.mkdir(exist_ok=True)
    if target.exists():  # a sandbox may still run on it: set aside, old enough for the collector
        aside = target.with_name(f"{name}.{folder.name}")
        target.rename(aside)
        os.utime(aside / "lock", (0, 0))
    return folder.rename(target)


def size_of(folder: Path) -> int | None:
    """Return the bytes that the files below a folder take on the disk."""
    total = 0
    try:
        for place, _folders, names in os.walk(folder, onerror=_raise):
            total += sum(os.lstat(f"{place}/{name}").st_blocks * 512 for name in names)
    except OSError:
        return None
    return total


def _raise(error: OSError) -> None:
    raise error
