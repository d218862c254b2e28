"""Which batches a results root holds, and whether a batch that has ended is as it was."""

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from terminalbench.experiments.batch import Batch
from terminalbench.harbor.read.results import RESULT

_DIGITS = 10
_SETTLED_NS = 2_000_000_000


class ForeignJobs(Batch):
    """A folder of Harbor jobs that are not ours, seen as a batch without a plan."""

    @property
    def number(self) -> int:
        """It has none."""
        return 0

    @property
    def runs(self) -> Path:
        """The jobs lie in the folder itself."""
        return self.folder

    @property
    def analytics(self) -> Path:
        """Inside the folder, or beside it where the folder is the `runs` of something."""
        around = self.folder.parent if self.folder.name == "runs" else self.folder
        return around / "analytics"


class Place(NamedTuple):
    """Where a batch lies: its key in the index, and its folder."""

    key: str
    folder: str

    @property
    def batch(self) -> Batch:
        """The batch that lies there."""
        return ForeignJobs(Path(self.folder)) if self.key == "." else Batch(Path(self.folder))


def find_batches(results_root: Path) -> Iterator[Batch]:
    """Every batch folder of a results root; a folder of Harbor jobs (or one job) of any origin counts as one batch."""
    return (place.batch for place in batch_places(root_around(results_root)) if is_text(place.key))


def batch_places(results_root: Path) -> Iterator[Place]:
    """The same, also those whose name is not text."""
    slugs = [entry for entry in _entries(str(results_root)) if not entry.name.startswith(".")]
    if any(_is_job(slug.path) for slug in slugs):
        yield Place(".", str(results_root))
    for slug in slugs:
        for entry in _entries(slug.path):
            if entry.name.isdecimal() and len(entry.name) < _DIGITS and _has_runs(entry.path):
                yield Place(f"{slug.name}/{entry.name}", entry.path)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted((entry for entry in entries if entry.is_dir()), key=lambda entry: entry.name)
    except OSError:
        return []


def root_around(folder: Path) -> Path:
    """The results root a folder means: itself, or the one it lies in when it is a job of Harbor."""
    return folder.parent if _is_job(str(folder)) else folder


def _is_job(folder: str) -> bool:
    return all(os.path.isfile(f"{folder}/{name}") for name in ("config.json", RESULT))  # noqa: PTH113  by the thousand


def _has_runs(folder: str) -> bool:
    """Whether it is a batch; one that may not be looked into is taken for one, and said to be unreadable."""
    try:
        return stat.S_ISDIR(os.stat(f"{folder}/runs").st_mode)  # noqa: PTH116
    except PermissionError:
        return True
    except OSError:
        return False


def is_text(name: str) -> bool:
    """Whether a name can be written down: on disk it may be any bytes."""
    return name.isascii() or name == name.encode(errors="replace").decode()


def batch_stamp(folder: str) -> str | None:
    """Changes with the plan, the events, and the trial folders of a batch. None while it cannot be relied on.

    Times are coarse: a change right after the look may leave them as they are, so only what is old enough counts.
    """
    paths = [f"{folder}/plan.json", f"{folder}/events.jsonl"]
    for parent in ("runs", "superseded"):
        paths += [entry.path for entry in _entries(f"{folder}/{parent}")]
    found = []
    newest = 0
    for path in paths:
        try:
            status = os.stat(path)  # noqa: PTH116
        except OSError:
            continue
        newest = max(newest, status.st_mtime_ns)
        size = status.st_size if stat.S_ISREG(status.st_mode) else 0
        found.append(f"{path[len(folder) :]}:{size}:{status.st_mtime_ns}")
    return ";".join(found) if newest < time.time_ns() - _SETTLED_NS else None
