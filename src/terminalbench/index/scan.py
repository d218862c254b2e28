"""Filling the index from disk: any time, from any state, reading only what changed.

A trial is read again when the size or time of its result.json changed. What cannot be read is kept as a row with
a reason: counted and shown, never fatal.
"""

import os
import sqlite3
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec

from terminalbench.errors import TbenchError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import Plan
from terminalbench.experiments.plan_secrets import secrets_of
from terminalbench.files import read_json
from terminalbench.harbor.read.results import NOT_READABLE, RESULT, ReadState, TrialReading, read_trial
from terminalbench.index.queries import plan_or_none
from terminalbench.index.store import open_index, transaction
from terminalbench.index.totals import summarize
from terminalbench.secrets.values import NONE, Secrets

_MARKS = (RESULT, "config.json", "lock.json")
_CHUNK = 500
_DIGITS = 10
_DENIED = "denied: "


@dataclass(frozen=True)
class ScanReport:
    """What a scan did: trials seen, read anew, gone, and those that could not be read."""

    seen: int = 0
    read: int = 0
    removed: int = 0
    unreadable: tuple[str, ...] = ()

    def __add__(self, other: "ScanReport") -> "ScanReport":
        return ScanReport(
            self.seen + other.seen,
            self.read + other.read,
            self.removed + other.removed,
            self.unreadable + other.unreadable,
        )


def scan_all(results_root: Path, *, rebuild: bool = False, in_root: bool = False) -> ScanReport:
    """Bring the index of every batch up to date; `rebuild` forgets everything first.

    With `in_root` it is the one in the results root that is brought up to date, or an error.
    """
    with open_index(results_root, in_root=in_root) as connection:
        return _scan_all(connection, results_root, rebuild=rebuild)


def _scan_all(connection: sqlite3.Connection, results_root: Path, *, rebuild: bool) -> ScanReport:
    total = ScanReport()
    if rebuild:
        with transaction(connection):
            connection.execute("DELETE FROM findings")
            connection.execute("DELETE FROM trials")
            connection.execute("DELETE FROM batches")
            connection.execute("DELETE FROM summaries")
    present = list(find_batches(results_root))
    for batch in present:
        total += _scan(connection, results_root, batch)
    nameless = [path for path in results_root.glob("*/*/runs") if not _is_text(path.parent.parent.name)]
    total += ScanReport(
        unreadable=tuple(
            f"{path.parent.parent.name!a}: its name is not UTF-8 text, so it is left out" for path in nameless
        )
    )
    known = {row[0] for row in connection.execute("SELECT DISTINCT batch FROM trials UNION SELECT batch FROM batches")}
    gone = known - {_key(batch, results_root) for batch in present}
    if not gone:
        return total
    with transaction(connection):
        for key in gone:
            removed = connection.execute("DELETE FROM trials WHERE batch = ?", (key,)).rowcount
            connection.execute("DELETE FROM findings WHERE batch = ?", (key,))
            connection.execute("DELETE FROM batches WHERE batch = ?", (key,))
            connection.execute("DELETE FROM summaries WHERE batch = ?", (key,))
            total += ScanReport(removed=removed)
    return total


def scan_batch(batch: Batch, results_root: Path | None = None, secrets: Secrets = NONE) -> ScanReport:
    """Bring the index of one batch up to date; what it keeps holds no secret of its plan, and none of `secrets`."""
    root = results_root or batch.folder.parent.parent
    with open_index(root) as connection:
        return _scan(connection, root, batch, secrets)


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


def find_batches(results_root: Path) -> Iterator[Batch]:
    """Every batch folder of a results root; a folder of Harbor jobs (or one job) of any origin counts as one batch."""
    results_root = root_around(results_root)
    if any(_is_job(folder) for folder in results_root.glob("*/")):
        yield ForeignJobs(results_root)
    for folder in sorted(results_root.glob("*/*")):
        if (
            folder.name.isdecimal()
            and len(folder.name) < _DIGITS
            and _is_text(folder.parent.name)
            and _has_runs(folder)
        ):
            yield Batch(folder)


def root_around(folder: Path) -> Path:
    """The results root a folder means: itself, or the one it lies in when it is a job of Harbor."""
    return folder.parent if _is_job(folder) else folder


def _is_job(folder: Path) -> bool:
    return (folder / "config.json").is_file() and (folder / "result.json").is_file()


def _has_runs(folder: Path) -> bool:
    """Whether it is a batch; one that may not be looked into is taken for one, and said to be unreadable."""
    try:
        return stat.S_ISDIR((folder / "runs").stat().st_mode)
    except PermissionError:
        return True
    except OSError:
        return False


def _is_text(name: str) -> bool:
    """Whether a name can be written down: on disk it may be any bytes."""
    return name.isascii() or name == name.encode(errors="replace").decode()


def profile_of(job: str) -> str | None:
    """The profile a job's name ends with, `<day>__<time>__<profile>`; None for a job of another shape."""
    parts = job.split("__", 2)
    return parts[2] if len(parts) == 3 else None


def _key(batch: Batch, results_root: Path) -> str:
    return batch.folder.relative_to(results_root).as_posix()


def _scan(connection: sqlite3.Connection, results_root: Path, batch: Batch, secrets: Secrets = NONE) -> ScanReport:
    key = _key(batch, results_root)
    query = "SELECT job, trial, stamp, counts FROM trials WHERE batch = ?"
    before = connection.execute(query, (key,)).fetchall()
    known = {(row["job"], row["trial"]): row["stamp"] for row in before}
    plan_before = _plan_stamp(connection, key)
    plan_problem = _note_batch(connection, key, batch)
    seen: set[tuple[str, str]] = set()
    changed: list[tuple[Path, str]] = []
    aside = (found for found in _trial_folders(batch.superseded, set()) if not _still_there(found, batch))
    problems: list[str] = []
    denied: set[str] = set()
    for found in chain(_trial_folders(batch.runs, denied), aside):
        if not _is_text(found.job + found.name):
            problems.append(f"{key}/runs/{found.job!a}/{found.name!a}: its name is not UTF-8 text, so it is left out")
            continue
        place = (found.job, found.name)
        seen.add(place)
        if known.get(place) != found.stamp:
            changed.append((Path(found.path), found.stamp))
    if changed:
        secrets |= secrets_of(plan_or_none(batch))
    for start in range(0, len(changed), _CHUNK):
        rows = []
        for folder, stamp in changed[start : start + _CHUNK]:
            reading = _read(folder, stamp, secrets)
            if reading.reason == NOT_READABLE:
                stamp = ""  # a right that is given changes neither size nor time: look again
            rows.append(_row(key, reading, stamp, superseded=folder.parent.parent == batch.superseded))
        with transaction(connection):
            connection.executemany(_INSERT, rows)
    problems += [f"{key}/runs/{job}: permission denied, its trials are not known" for job in sorted(denied)]
    gone = {place for place in set(known) - seen if place[0] not in denied and "" not in denied}
    if gone:
        with transaction(connection):
            places = [(key, *place) for place in gone]
            connection.executemany("DELETE FROM trials WHERE batch = ? AND job = ? AND trial = ?", places)
    counted = connection.execute("SELECT 1 FROM summaries WHERE batch = ?", (key,)).fetchone() is not None
    counted = counted and all(row["counts"] is not None for row in before)  # else a scan was cut off before its end
    if changed or gone or not counted or plan_before != _plan_stamp(connection, key):
        summarize(connection, key, plan_or_none(batch))
    torn = connection.execute(
        "SELECT job, trial, reason FROM trials WHERE batch = ? AND state = ?", (key, ReadState.UNREADABLE.value)
    )
    unreadable = [f"{key}/runs/{row['job']}/{row['trial']}: {row['reason']}" for row in torn] + problems
    if plan_problem is not None:
        unreadable.append(f"{key}/plan.json: {plan_problem}")
    return ScanReport(len(seen), len(changed), len(gone), tuple(unreadable))


class _Folder(NamedTuple):
    """A trial folder, with a stamp that changes when its result does. No Path: there are ten thousand of them."""

    job: str
    name: str
    path: str
    stamp: str


def _trial_folders(runs: Path, denied: set[str]) -> Iterator[_Folder]:
    """Every trial folder below `runs`. `denied` gets the jobs that may not be looked into; "": not even `runs`."""
    for job in _folders(runs, denied, ""):
        for entry in _folders(job.path, denied, job.name):
            stamp = _stamp(entry.path)
            if stamp is not None:
                yield _Folder(job.name, entry.name, entry.path, stamp)


def _read(folder: Path, stamp: str, secrets: Secrets) -> TrialReading:
    if stamp.startswith(_DENIED):
        reason = stamp.removeprefix(_DENIED)
        return TrialReading(state=ReadState.UNREADABLE, name=folder.name, job=folder.parent.name, reason=reason)
    return read_trial(folder, profile=profile_of(folder.parent.name), secrets=secrets)


def _still_there(kept: _Folder, batch: Batch) -> bool:
    """Whether a try that was set aside is also where it was: Harbor was killed before it could remove it."""
    original = batch.runs / kept.job / kept.name.rpartition("-try")[0]
    try:
        return (Path(kept.path) / RESULT).samefile(original / RESULT)
    except OSError:
        return False


def _folders(path: str | Path, denied: set[str], name: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            found = [e for e in entries if not e.name.startswith(".") and e.is_dir(follow_symlinks=False)]
    except PermissionError:
        denied.add(name)
        return []
    except OSError:
        return []
    return sorted(found, key=lambda entry: entry.name)


def _stamp(folder: str) -> str | None:
    """Size and time of the result; of the configuration while there is no result; None: not a trial."""
    for name in _MARKS:
        try:
            status = os.stat(f"{folder}/{name}")  # noqa: PTH116  ten thousand times a scan
        except PermissionError as error:
            return f"{_DENIED}{error.strerror}"
        except OSError:
            continue
        stamp = f"{name}:{status.st_size}:{status.st_mtime_ns}"
        return stamp if name == RESULT else f"{stamp};{_signs_of_life(folder)}"
    return None


def _signs_of_life(folder: str) -> str:
    """What may still change in a trial without a result: why it is held, and the logs its cost is read from."""
    found = []
    for place in (folder, f"{folder}/agent"):
        try:
            with os.scandir(place) as entries:
                files = [(e.name, e.stat(follow_symlinks=False)) for e in entries if e.is_file(follow_symlinks=False)]
        except OSError:
            continue
        found += [f"{name}:{status.st_size}:{status.st_mtime_ns}" for name, status in sorted(files)]
    return ";".join(found)


def _plan_stamp(connection: sqlite3.Connection, key: str) -> str | None:
    row = connection.execute("SELECT plan_stamp FROM batches WHERE batch = ?", (key,)).fetchone()
    return row["plan_stamp"] if row is not None else None


def _note_batch(connection: sqlite3.Connection, key: str, batch: Batch) -> str | None:
    """Record what the batch is; the reason when its plan cannot be read. A batch is listed either way."""
    try:
        status = batch.plan_json.stat()
        stamp = f"{status.st_size}:{status.st_mtime_ns}"
    except OSError:
        stamp = "none"
    if _plan_stamp(connection, key) == stamp:
        return None
    slug = batch.folder.parent.name
    try:
        plan: Plan = read_json(batch.plan_json, Plan)
    except FileNotFoundError:
        values = (key, slug, batch.number, "a folder of Harbor jobs", None, None, None, stamp)
    except (TbenchError, OSError) as error:
        reason = error.what if isinstance(error, TbenchError) else str(error)
        values = (key, slug, batch.number, "plan.json cannot be read", None, None, None, None)
        with transaction(connection):
            connection.execute("INSERT OR REPLACE INTO batches VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
        return reason
    else:
        planned = sum(job.trials for job in plan.jobs)
        created = plan.provenance.created_at
        values = (key, plan.slug, batch.number, plan.name, created, plan.baseline, planned, stamp)
    with transaction(connection):
        connection.execute("INSERT OR REPLACE INTO batches VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
    return None


_COLUMNS = (
    "batch", "job", "trial", "state", "reason", "stamp", "profile", "task", "dataset", "outcome", "agent_status",
    "reward", "error_class", "error_type", "error_message", "agent", "agent_version", "model", "started_at",
    "finished_at",
    "environment_sec", "agent_setup_sec", "agent_sec", "verifier_sec", "input_tokens", "cache_read_tokens",
    "cache_write_tokens", "output_tokens", "cost_usd", "usage_source", "cost_source", "simulated", "suspect",
    "task_digest", "superseded", "record",
)  # fmt: skip
_INSERT = f"INSERT OR REPLACE INTO trials ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608


def _row(key: str, reading: TrialReading, stamp: str, *, superseded: bool) -> tuple[object, ...]:
    trial, usage = reading.trial, reading.usage
    values: dict[str, object] = {
        "batch": key,
        "job": reading.job,
        "trial": reading.name,
        "state": reading.state.value,
        "reason": reading.reason,
        "superseded": int(superseded),
        "stamp": stamp,
        "profile": profile_of(reading.job),
        "task": reading.task,
        "dataset": reading.dataset,
        "input_tokens": usage.input_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": usage.cost_usd,
        "usage_source": usage.source,
        "cost_source": usage.cost_source,
    }
    if trial is not None:
        names = (
            "outcome", "agent_status", "reward", "error_class", "error_type", "error_message", "agent", "agent_version",
            "model", "started_at", "finished_at", "task_digest",
        )  # fmt: skip
        values |= {name: getattr(trial, name) for name in names}
        values |= msgspec.structs.asdict(trial.phases)
        values["simulated"] = int(trial.simulated)
        values["suspect"] = "; ".join(trial.suspect) or None
        values["record"] = msgspec.json.encode(trial)
    return tuple(values.get(name) for name in _COLUMNS)
