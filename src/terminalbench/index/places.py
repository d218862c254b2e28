"""The batches of a results root, the plan of each on its trials, and whether one that has ended is as it was."""

import os
import sqlite3
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from terminalbench.errors import TbenchError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import HARBOR, Plan
from terminalbench.harbor.read import READER, RESULT
from terminalbench.json_files import read_json

TRIAL_FILES = (RESULT, "config.json", "lock.json")
"""A folder with one of these may be a trial's."""
_TRIAL_SIGNS = ("trial.log", "agent", "verifier", "exception.txt", "steps")
_NIGHT_SIGNS = ("events.jsonl", "gate.json")
"""What a night has besides its `config.json`, and no trial or job of Harbor."""
_DIGITS = 10
_SETTLED_NS = 2_000_000_000


@dataclass(frozen=True)
class ForeignJobs(Batch):
    """A folder of Harbor jobs that are not ours, seen as a batch without a plan; with `only` these of its jobs."""

    only: tuple[str, ...] = ()

    @property
    def results_root(self) -> Path:
        """The folder itself."""
        return self.folder

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

    @property
    def tables(self) -> Path:
        """Those of one job do not take the place of those of all."""
        return self.analytics / self.only[0] if len(self.only) == 1 else self.analytics


class BatchPlace(NamedTuple):
    """The place of a batch: its key in the index, and its folder."""

    key: str
    folder: str

    @property
    def batch(self) -> Batch:
        """The batch that lies there."""
        return ForeignJobs(Path(self.folder)) if self.key == "." else Batch(Path(self.folder))


def find_batches(results_root: Path) -> Iterator[Batch]:
    """Every batch folder of a results root; a folder of Harbor jobs (or one job) of any origin counts as one batch."""
    return (place.batch for place in batch_places(root_around(results_root)) if is_text(place.key))


def batch_places(results_root: Path) -> Iterator[BatchPlace]:
    """The same, also those whose name is not text."""
    slugs = [entry for entry in _entries(str(results_root)) if not entry.name.startswith(".")]
    if any(is_job(slug.path) for slug in slugs):
        yield BatchPlace(".", str(results_root))
    for slug in slugs:
        for entry in _entries(slug.path):
            if _is_batch(entry):
                yield BatchPlace(f"{slug.name}/{entry.name}", entry.path)


def holds_batch(results_root: Path) -> bool:
    """Return whether `batch_places` finds one; looks no further than the first, whose siblings may be thousands."""
    slugs = [entry for entry in _entries(str(results_root)) if not entry.name.startswith(".")]
    return any(_is_batch(entry) for slug in slugs for entry in _each_folder(slug.path)) or any(
        is_job(slug.path) for slug in slugs
    )


def _entries(folder: str) -> list[os.DirEntry[str]]:
    return sorted(_each_folder(folder), key=lambda entry: entry.name)


def _each_folder(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from (entry for entry in entries if entry.is_dir())
    except OSError:
        return


def profile_of(job: str) -> str | None:
    """The profile a job's name ends with, `<day>__<time>__<profile>`; None for a job of another shape."""
    parts = job.split("__", 2)
    return parts[2] if len(parts) == 3 else None


def root_around(folder: Path) -> Path:
    """The results root a folder means: itself, or the one it lies in when it is a job of Harbor."""
    return folder.parent if is_job(str(folder)) else folder


def find_jobs(folder: Path) -> ForeignJobs | None:
    """The Harbor jobs that a folder means: those in it, or itself when it is one; None when it holds none."""
    if is_job(str(folder)):
        return ForeignJobs(folder.parent, (folder.name,))
    return ForeignJobs(folder) if any(is_job(entry.path) for entry in _entries(str(folder))) else None


def is_job(folder: str) -> bool:
    """Return whether a folder is a Harbor job, also one that was cut off or has lost its own files: trials lie in it.

    The folder of a night is none, whatever the code under test in it looks like.
    """
    return not _has(folder, (*_TRIAL_SIGNS, *_NIGHT_SIGNS)) and any(is_trial(entry.path) for entry in _children(folder))


def is_trial(folder: str) -> bool:
    """Return whether a folder is a trial of Harbor: with the files of a job, and neither of trials nor of a night."""
    if not _has(folder, TRIAL_FILES):
        return False
    if _has(folder, _TRIAL_SIGNS):
        return True
    return not _has(folder, _NIGHT_SIGNS) and not any(_has(entry.path, TRIAL_FILES) for entry in _children(folder))


def _children(folder: str) -> Iterator[os.DirEntry[str]]:
    """The folders in a folder, without batches of ours, which are numbers."""
    return (entry for entry in _entries(folder) if not entry.name.startswith(".") and not entry.name.isdecimal())


def _has(folder: str, names: tuple[str, ...]) -> bool:
    return any(os.path.lexists(f"{folder}/{name}") for name in names)


def _is_batch(entry: os.DirEntry[str]) -> bool:
    return entry.name.isdecimal() and len(entry.name) < _DIGITS and _has_runs(entry.path)


def _has_runs(folder: str) -> bool:
    """Return whether it is a batch; one that may not be looked into is taken for one, and said to be unreadable."""
    try:
        return stat.S_ISDIR(os.stat(f"{folder}/runs").st_mode)  # noqa: PTH116
    except PermissionError:
        return True
    except OSError:
        return False


def is_text(name: str) -> bool:
    """Return whether a name can be written down: on disk it may be any bytes."""
    return name.isascii() or name == name.encode(errors="replace").decode()


def batch_stamp(folder: str) -> str | None:
    """Changes with the plan, the events, the trial folders of a batch and the rules. None while it cannot be relied on.

    Times are coarse: a change right after the look may leave them as they are, so only what is old enough counts.
    """
    paths = [f"{folder}/plan.json", f"{folder}/events.jsonl"]
    for parent in ("runs", "superseded"):
        paths += [entry.path for entry in _entries(f"{folder}/{parent}")]
    found = [f"reader:{READER}"]
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


@dataclass(frozen=True)
class PlanFacts:
    """The facts by profile, and by the label of a dataset and a task. `labels` is JSON; None: no plan says."""

    profile_ids: Mapping[str, str]
    policy_ids: Mapping[str, str]
    families: Mapping[tuple[str, str], str]
    labels: str | None

    @classmethod
    def of(cls, plan: Plan | None) -> "PlanFacts":
        """Those of a plan; of none, nothing is known."""
        if plan is None:
            return cls({}, {}, {}, None)
        # Of what another tool ran, only the names of the profiles are known.
        own = plan.imported is None or plan.imported.format == HARBOR
        return cls(
            {job.profile: job.profile_id for job in plan.jobs if own},
            {job.profile: job.profile_id for job in plan.jobs if own}
            | {one.key: one.policy_id for one in plan.profiles if own},
            {(t.label, t.ref.id): t.ref.family for job in plan.jobs for t in job.tasks if t.ref.family is not None},
            msgspec.json.encode(plan.labels, order="sorted").decode(),
        )

    def columns(self, profile: str | None, dataset: str | None, task: str | None) -> dict[str, str | None]:
        """The columns of one trial."""
        return {
            "profile_id": self.profile_ids.get(profile or ""),
            "policy_id": self.policy_ids.get(profile or ""),
            "family": self.families.get((dataset or "", task or "")),
            "labels": self.labels,
        }


def plan_or_none(batch: Batch) -> Plan | None:
    """The plan of a batch, None when it has none that can be read."""
    try:
        return read_json(batch.plan_json, Plan)
    except (OSError, TbenchError):
        return None


def keep_facts(connection: sqlite3.Connection, key: str, plan: Plan | None) -> None:
    """Put what a plan says beside the trials that the index has of its batch, and note its profiles."""
    facts = PlanFacts.of(plan)
    rows = connection.execute("SELECT rowid, profile, dataset, task FROM trials WHERE batch = ?", (key,)).fetchall()
    connection.executemany(
        "UPDATE trials SET profile_id = :profile_id, policy_id = :policy_id, family = :family, labels = :labels "
        "WHERE rowid = :rowid",
        [{"rowid": row[0], **facts.columns(row[1], row[2], row[3])} for row in rows],
    )
    budget_usd = plan.settings.budget_usd if plan is not None else None
    connection.execute("UPDATE batches SET labels = ?, budget_usd = ? WHERE batch = ?", (facts.labels, budget_usd, key))
    connection.executemany(
        "INSERT OR REPLACE INTO profiles (id, agent, model) VALUES (?, ?, ?)",
        [(p.id, p.content.get("agent"), p.content.get("model")) for p in (plan.profiles if plan else ())],
    )
