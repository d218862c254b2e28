"""What sandboxes keep on this machine, and the removal of what dead ones left behind.

<cache>/terminalbench/sandbox-<uid>/
  run/<name>/          one per running sandbox, with run/<name>.lock held by its guardian
  base/<kind>-<hash>/  the host's system as sandboxes see it
  layers/<hash>/       one per built Dockerfile: meta.json, 0/ 1/ ... (a folder per overlay), `lock`
  layers/<hash>.lock   held while that layer is built
  building/<name>/     a layer being built, with building/<name>.lock
"""

import contextlib
import fcntl
import itertools
import os
import secrets
import tempfile
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

from terminalbench.harbor.sandbox.errors import SandboxError
from terminalbench.harbor.sandbox.helper import helper

LAYER_DAYS = 30
_counter = itertools.count(1)


def root() -> Path:
    """The cache folder of this user, private to it."""
    base = os.environ.get("XDG_CACHE_HOME") or None
    if base is None:
        home = Path.home()
        base = str(home / ".cache") if os.access(home, os.W_OK) else tempfile.gettempdir()
    folder = Path(base) / "terminalbench" / f"sandbox-{os.geteuid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise SandboxError(
            f"cannot make {folder}: {error.strerror}", hint="set XDG_CACHE_HOME to a writable folder"
        ) from error
    if folder.stat().st_uid != os.geteuid():
        raise SandboxError(f"{folder} belongs to another user", hint="set XDG_CACHE_HOME to a folder of your own")
    return folder


@dataclass(frozen=True)
class Claimed:
    """A folder of ours with its locked lock file; whoever holds `lock` open keeps the folder alive."""

    folder: Path
    lock: int


def claim(kind: str) -> Claimed:
    """A new empty folder below `kind` that the collector leaves alone while its lock is held."""
    parent = root() / kind
    parent.mkdir(exist_ok=True)
    while True:
        folder = parent / f"{os.getpid()}-{next(_counter)}-{secrets.token_hex(3)}"
        lock = os.open(_lock_file(folder), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_SH)
        if os.fstat(lock).st_nlink:  # else a collector took it for a leftover before we held it
            folder.mkdir()
            return Claimed(folder, lock)
        os.close(lock)


def release(claimed: Claimed) -> None:
    """Remove what is left of a claimed folder, and its lock."""
    if claimed.folder.exists():
        helper().ask({"op": "remove", "paths": [str(claimed.folder)]})
    os.close(claimed.lock)
    _lock_file(claimed.folder).unlink(missing_ok=True)


def _lock_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


@dataclass(frozen=True)
class Collected:
    """How much garbage was removed."""

    sandboxes: int = 0
    groups: int = 0
    builds: int = 0
    layers: int = 0


def collect_leftovers() -> Collected:
    """Remove what dead sandboxes left: folders, control groups, unfinished builds, layers unused for a month."""
    sandboxes = groups = builds = layers = 0
    for folder in _dead(root() / "run"):
        groups += _remove_groups(folder / "groups")
        sandboxes += _remove(folder)
    for folder in _dead(root() / "building"):
        builds += _remove(folder)
    for folder in (*_expired(root() / "layers", "*/lock"), *_expired(root() / "base", "*/root")):
        layers += _remove(folder)
    return Collected(sandboxes, groups, builds, layers)


def _dead(parent: Path) -> Iterator[Path]:
    """Claimed folders whose lock nobody holds. We hold it until the next one is asked for.

    So a folder that is being claimed right now is not taken for one that was left: whoever waits for its lock finds
    the file removed, and claims another.
    """
    for lock_file in sorted(parent.glob("*.lock")):
        with _locked(lock_file) as free:
            folder = lock_file.with_suffix("")
            if free and folder.exists():
                yield folder
            elif free:
                lock_file.unlink(missing_ok=True)


def _expired(parent: Path, pattern: str) -> list[Path]:
    """Layers and bases by the time of their last use."""
    limit = time.time() - LAYER_DAYS * 86400
    marks = {mark: mark if mark.name == "lock" else mark.parent for mark in sorted(parent.glob(pattern))}
    return [
        mark.parent
        for mark, dated in marks.items()
        if dated.stat().st_mtime < limit and (mark.name != "lock" or _unlocked(mark))
    ]


def _unlocked(path: Path) -> bool:
    with _locked(path) as free:
        return free


@contextlib.contextmanager
def _locked(path: Path) -> Generator[bool]:
    """Hold a lock file; or False: somebody else does, or it is gone."""
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
    left = helper().ask({"op": "remove", "paths": [str(folder)]})["left"]
    if not left:
        _lock_file(folder).unlink(missing_ok=True)
    return 0 if left else 1


def _remove_groups(note: Path) -> int:
    removed = 0
    with contextlib.suppress(FileNotFoundError):
        for line in note.read_text().splitlines():
            with contextlib.suppress(OSError):
                os.rmdir(line)  # noqa: PTH106 - a control group can only be removed so
                removed += 1
    return removed
