"""Copying session folders out of trials: `agent/sessions/<target>/` to `artifacts/<target>/<trial>/`.

Idempotent and atomic: a copy appears whole or not at all, and is made again only when its source changed.
"""

import errno
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from terminalbench.errors import EXIT_USAGE, TbenchError
from terminalbench.files import special_files
from terminalbench.json_files import read_json, write_json
from terminalbench.locks import start_ticks
from terminalbench.modes import make_folder

SEAL = ".tbench-mirror.json"
_SWAP_TRIES = 10


@dataclass(frozen=True)
class MirrorPass:
    """The result of one pass. `failed` names the trials whose copy could not be made, and why."""

    copied: int = 0
    unchanged: int = 0
    failed: tuple[str, ...] = ()

    def __add__(self, other: "MirrorPass") -> "MirrorPass":
        return MirrorPass(self.copied + other.copied, self.unchanged + other.unchanged, self.failed + other.failed)


def mirror_trial(trial: Path, targets: Iterable[str], destination: Path) -> MirrorPass:
    """Mirror the targets of one trial folder."""
    made = MirrorPass()
    for target in targets:
        for source, name in _sources(trial, target):
            try:
                fresh = _copy(source, destination / target / name)
                made += MirrorPass(copied=fresh, unchanged=not fresh)
            except RecursionError:
                made += MirrorPass(failed=(f"{name}: its folders are nested too deep",))
            except OSError as error:
                made += MirrorPass(failed=(f"{name}: {error.strerror or error}",))
    return made


def mirror_batch(runs: Path, targets: Iterable[str], destination: Path) -> MirrorPass:
    """Mirror the targets of every trial of every job below `runs`."""
    wanted = list(targets)
    _sweep(destination)
    return sum((mirror_trial(trial, wanted, destination) for trial in _trials(runs)), MirrorPass())


def _own_prefix(pid: int) -> str:
    """Return what the temporary folders of a process of this machine are called: it says who makes them."""
    return f".mirror-{socket.gethostname()}-{pid}-{start_ticks(pid)}-"


def _sweep(destination: Path) -> None:
    """Remove what processes of this machine have left that were killed while they copied."""
    place = re.compile(rf"\.mirror-{re.escape(socket.gethostname())}-(\d+)-\d+-")
    for folder in [*destination.glob("*/.mirror-*"), *destination.glob("*/*/.mirror-*")]:
        made_by = place.match(folder.name)
        if made_by is not None and not folder.name.startswith(_own_prefix(int(made_by[1]))):
            shutil.rmtree(folder, ignore_errors=True)


def _trials(runs: Path) -> Iterator[Path]:
    for agent in sorted(runs.glob("*/*/agent")):
        yield agent.parent
    for steps in sorted(runs.glob("*/*/steps")):
        if not (steps.parent / "agent").exists():
            yield steps.parent


def _sources(trial: Path, target: str) -> Iterator[tuple[Path, str]]:
    """The target's folder of a trial, or one for each step of a multi-step trial."""
    if (single := _sessions(trial, target)) is not None:
        yield single, trial.name
    for step in sorted((trial / "steps").glob("*")):
        if (folder := _sessions(step, target)) is not None:
            yield folder, f"{trial.name}/{step.name}"


def _sessions(place: Path, target: str) -> Path | None:
    """The target's folder, if no part of the way to it is a link: an agent could have led it anywhere."""
    folder = place / "agent" / "sessions" / target
    links = any(part.is_symlink() for part in (folder, folder.parent, folder.parent.parent, place))
    return folder if folder.is_dir() and not links else None


def _copy(source: Path, destination: Path) -> bool:
    """Copy unless the destination was made from the same source; True when it copied."""
    state = _state(source)
    if destination.is_dir() and _sealed(destination) == state:
        return False
    make_folder(destination.parent)
    _refuse_what_fills_the_disk(sum(size for size, _ in state.values()), destination.parent)
    with tempfile.TemporaryDirectory(dir=destination.parent, prefix=_own_prefix(os.getpid())) as folder:
        fresh = Path(folder) / "fresh"
        # Symbolic links stay links: what an agent planted must not make us read or copy the host's files.
        shutil.copytree(source, fresh, symlinks=True, ignore_dangling_symlinks=True, ignore=special_files)
        write_json(fresh / SEAL, state)
        return _swap(fresh, destination, state)


def _refuse_what_fills_the_disk(size: int, folder: Path) -> None:
    """A file of holes takes no room where it is, and all of it in a copy."""
    free = shutil.disk_usage(folder).free
    if size > free // 2:
        raise OSError(errno.ENOSPC, f"a copy needs {size >> 20} MB, and only {free >> 20} MB are free")


def _swap(fresh: Path, destination: Path, state: object) -> bool:
    """Put a copy in its place; False when another process that mirrors too was faster."""
    for tries_left in reversed(range(_SWAP_TRIES)):
        if _sealed(destination) == state:
            return False
        try:
            if destination.exists():
                destination.rename(fresh.with_name(f"old-{tries_left}"))
            fresh.rename(destination)
        except OSError:
            if not tries_left:
                raise
        else:
            return True
    return False


def _sealed(destination: Path) -> object:
    try:
        return read_json(destination / SEAL)
    except (OSError, TbenchError):
        return None


def _state(source: Path) -> dict[str, list[int]]:
    """Size and time of every file: what decides whether a copy is current."""
    found: dict[str, list[int]] = {}
    for folder, _, files in os.walk(source):
        for name in files:
            path = Path(folder) / name
            status = path.lstat()
            known_as = os.fsencode(path.relative_to(source).as_posix()).decode("utf-8", "backslashreplace")
            found[known_as] = [status.st_size, status.st_mtime_ns]
    return dict(sorted(found.items()))


if __name__ == "__main__":
    sys.stderr.write(
        "python -m terminalbench.runner.mirror_artifacts has been replaced by tbench mirror. A run mirrors "
        "automatically; to repeat it:\n  tbench mirror EXPERIMENT.toml [--batch N] [--targets NAME...] "
        "[--dest-dirname artifacts]\n"
    )
    sys.exit(EXIT_USAGE)
