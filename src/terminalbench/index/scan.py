"""Filling the index from disk: any time, from any state, reading only what changed.

A trial is read again when the size or time of its result.json changed, or the rules that decided it did. What cannot be
read is kept as a row with a reason: counted and shown, never fatal.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from terminalbench.errors import TbenchError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.envfile import secrets_of_profiles
from terminalbench.experiments.plan import Plan
from terminalbench.harbor.read import READER, RESULT
from terminalbench.harbor.read.results import NOT_READABLE, read_trial
from terminalbench.harbor.read.treatment import read_treatment, treatment_id
from terminalbench.index.database import transaction
from terminalbench.index.exposures import keep_exposures
from terminalbench.index.foreign import keep_profiles, keep_treatments
from terminalbench.index.imported import read_trials
from terminalbench.index.places import (
    TRIAL_FILES,
    ForeignJobs,
    PlanFacts,
    batch_places,
    batch_stamp,
    is_text,
    keep_facts,
    profile_of,
)
from terminalbench.index.queries import trial_columns
from terminalbench.index.store import open_index
from terminalbench.index.totals import summarize
from terminalbench.json_files import read_json
from terminalbench.records.trial import ReadState, TrialReading
from terminalbench.secrets.values import NONE, Secrets
from terminalbench.text.screen import tell

_CHUNK = 500
_DENIED = "denied: "


@dataclass(frozen=True)
class ScanReport:
    """The result of a scan: trials seen, read anew, gone, and those that could not be read."""

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


def scan_all(results_root: Path, *, rebuild: bool = False, thorough: bool = False, in_root: bool = False) -> ScanReport:
    """Bring the index of every batch up to date; `rebuild` forgets everything first.

    A batch that has ended is passed over while its plan, its events, its folders of jobs and of tries set aside are as
    they were. A result that was edited in place changes none of them: `thorough` looks at every trial, as `scan_batch`
    does. With `in_root` it is the index in the results root that is brought up to date, or an error.
    """
    with open_index(results_root, in_root=in_root) as connection:
        if rebuild:
            with transaction(connection):
                for table in ("findings", "exposures", "trials", "batches", "summaries", "profiles"):
                    connection.execute(f"DELETE FROM {table}")  # noqa: S608
        return _scan_all(connection, results_root, thorough=thorough)


def _scan_all(connection: sqlite3.Connection, results_root: Path, *, thorough: bool) -> ScanReport:
    total = ScanReport()
    known = {row[0]: row[1] for row in connection.execute("SELECT batch, stamp FROM batches")}
    sizes = dict(connection.execute("SELECT batch, count(*) FROM trials GROUP BY batch").fetchall())
    present: set[str] = set()
    environment = cache(Secrets.of_environment)
    for place in batch_places(results_root):
        if not is_text(place.key):
            name = place.key.partition("/")[0]
            total += ScanReport(unreadable=(f"{name!a}: its name is not UTF-8 text, so it is left out",))
            continue
        present.add(place.key)
        settled = known.get(place.key)
        if not thorough and settled is not None and settled == batch_stamp(place.folder):
            total += ScanReport(seen=sizes.get(place.key, 0))
        else:
            total += _scan(connection, place.key, place.batch, environment=environment)
    gone = (known.keys() | sizes.keys()) - present
    if gone:
        with transaction(connection):
            removed = 0
            for table in ("findings", "exposures", "batches", "summaries", "trials"):
                removed = connection.executemany(
                    f"DELETE FROM {table} WHERE batch = ?",  # noqa: S608
                    [(key,) for key in gone],
                ).rowcount
        total += ScanReport(removed=removed)
    return total


def scan_batch(batch: Batch, results_root: Path | None = None, secrets: Secrets = NONE) -> ScanReport:
    """Bring the index of one batch up to date; what it keeps holds no secret of its plan, and none of `secrets`."""
    root = results_root or batch.results_root
    with open_index(root) as connection:
        return _scan(connection, batch.folder.relative_to(root).as_posix(), batch, secrets)


def _scan(
    connection: sqlite3.Connection,
    key: str,
    batch: Batch,
    secrets: Secrets = NONE,
    environment: Callable[[], Secrets] = Secrets.of_environment,
) -> ScanReport:
    if not isinstance(batch, ForeignJobs) and os.path.isdir(batch.imported):  # noqa: PTH112  False where it may not be read
        return _scan_imported(connection, key, batch)
    return _scan_folders(connection, key, batch, secrets, environment)


def _scan_folders(
    connection: sqlite3.Connection, key: str, batch: Batch, secrets: Secrets, environment: Callable[[], Secrets]
) -> ScanReport:
    foreign = isinstance(batch, ForeignJobs)
    seen = None if foreign else batch_stamp(str(batch.folder))
    query = (
        "SELECT plan_stamp, stamp, s.batch AS counted FROM batches LEFT JOIN summaries s USING (batch) WHERE batch = ?"
    )
    noted = connection.execute(query, (key,)).fetchone()
    query = "SELECT job, trial, stamp, counts, reader FROM trials WHERE batch = ?"
    before = connection.execute(query, (key,)).fetchall()
    known = {(row["job"], row["trial"]): row["stamp"] if row["reader"] == READER else "" for row in before}
    found = _look(key, batch, known)
    plan_stamp = _plan_stamp(batch)
    new_plan = noted is None or noted["plan_stamp"] != plan_stamp
    # A scan that was cut off before its end has left trials that were not counted.
    counted = noted is not None and noted["counted"] is not None and all(row["counts"] is not None for row in before)
    problems = list(found.problems)
    if new_plan or found.changed or found.gone or not counted:
        noting = _read_plan(key, batch, plan_stamp)
        facts = PlanFacts.of(noting.plan)
        if noting.problem is not None:
            problems.append(f"{key}/plan.json: {noting.problem}")
        if found.changed:
            secrets |= environment() | secrets_of_profiles(noting.plan)
        rows: list[dict[str, object]] = []
        treatments: dict[str, dict[str, Any]] = {}
        aside = f"{batch.superseded}/"
        for place, one in enumerate(found.changed):
            tell(f"{key}: reading trials", place, len(found.changed))
            if len(rows) == _CHUNK:
                with transaction(connection):
                    keep_treatments(connection, treatments)
                    _insert(connection, rows)
                rows = []
            reading = _read(one, secrets)
            # A right that is given changes neither size nor time: look again.
            stamp = one.stamp if reading.reason != NOT_READABLE else ""
            rows.append(_values(key, reading, stamp, facts, superseded=one.path.startswith(aside)))
            content = read_treatment(Path(one.path)) if foreign else None
            if content is not None:
                rows[-1]["treatment"] = identity = treatment_id(content)
                treatments[identity] = content
        tell(f"{key}: reading trials", len(found.changed), len(found.changed))
        # One transaction: no other process writes between the look at the trials and their counts, so that older counts
        # never take the place of newer ones.
        with transaction(connection):
            if new_plan:
                connection.execute(_INSERT_BATCH, noting.values)
            keep_treatments(connection, treatments)
            _insert(connection, rows)
            _remove(connection, [(key, *place) for place in found.gone])
            if new_plan:
                keep_facts(connection, key, noting.plan)
            if foreign:
                keep_profiles(connection, key)
            summarize(connection, key, noting.plan)
            unsettled = _unsettled(connection, key)
            connection.execute(_SETTLE, (None if unsettled or problems else seen, key))
    else:
        unsettled = _unsettled(connection, key)
        settled = None if unsettled or problems else seen
        if settled != noted["stamp"]:
            with transaction(connection):
                connection.execute(_SETTLE, (settled, key))
    torn = [row for row in unsettled if row["state"] == ReadState.UNREADABLE]
    unreadable = [f"{key}/runs/{row['job']}/{row['trial']}: {row['reason']}" for row in torn] + problems
    return ScanReport(found.seen, len(found.changed), len(found.gone), tuple(unreadable))


def _scan_imported(connection: sqlite3.Connection, key: str, batch: Batch) -> ScanReport:
    """Bring the index of an imported batch up to date: its plan says which file holds its trials, all of them."""
    noted = connection.execute("SELECT plan_stamp FROM batches WHERE batch = ?", (key,)).fetchone()
    query = "SELECT count(*), min(reader = ?) FROM trials WHERE batch = ?"
    seen, by_these_rules = connection.execute(query, (READER, key)).fetchone()
    stamp = _plan_stamp(batch)
    if noted is not None and noted["plan_stamp"] == stamp and by_these_rules:
        return ScanReport(seen=seen)
    noting = _read_plan(key, batch, stamp)
    record = noting.plan.imported if noting.plan is not None else None
    problem = noting.problem or ("its import did not finish" if record is None else None)
    readings: list[TrialReading] = []
    try:
        readings = read_trials(batch, record) if record is not None else []
    except TbenchError as error:
        problem = str(error)
    facts = PlanFacts.of(noting.plan)
    rows = [_values(key, one, stamp, facts, superseded=False) for one in readings]
    with transaction(connection):
        connection.execute(_INSERT_BATCH, noting.values)
        for table in ("trials", "exposures"):
            connection.execute(f"DELETE FROM {table} WHERE batch = ?", (key,))  # noqa: S608
        for place in range(0, len(rows), _CHUNK):
            _insert(connection, rows[place : place + _CHUNK])
        keep_facts(connection, key, noting.plan)
        summarize(connection, key, noting.plan)
        connection.execute(_SETTLE, (None if problem else batch_stamp(str(batch.folder)), key))
    return ScanReport(len(rows), len(rows), max(0, seen - len(rows)), (f"{key}: {problem}",) if problem else ())


def _unsettled(connection: sqlite3.Connection, key: str) -> list[sqlite3.Row]:
    """The trials of a batch that a later scan has to look at again."""
    query = "SELECT job, trial, reason, state FROM trials WHERE batch = ? AND state IN (?, ?)"
    return connection.execute(query, (key, ReadState.UNREADABLE.value, ReadState.UNFINISHED.value)).fetchall()


class _FolderScan(NamedTuple):
    """The trials that a walk through the folders of a batch found, beside those that the index knows."""

    seen: int
    changed: list["_TrialFolder"]
    gone: set[tuple[str, str]]
    problems: list[str]


def _look(key: str, batch: Batch, known: dict[tuple[str, str], str]) -> _FolderScan:
    seen: set[tuple[str, str]] = set()
    changed: list[_TrialFolder] = []
    aside = (found for found in _trial_folders(batch.superseded, set()) if not _still_there(found, batch))
    problems: list[str] = []
    denied: set[str] = set()
    only = batch.only if isinstance(batch, ForeignJobs) else ()
    inside = _trial_folders(batch.runs, denied, links=isinstance(batch, ForeignJobs), only=only)
    for found in chain(inside, aside):
        if not is_text(found.job + found.name):
            problems.append(f"{key}/runs/{found.job!a}/{found.name!a}: its name is not UTF-8 text, so it is left out")
            continue
        place = (found.job, found.name)
        seen.add(place)
        if known.get(place) != found.stamp:
            changed.append(found)
    problems += [f"{key}/runs/{job}: permission denied, so its trials are unknown" for job in sorted(denied)]
    unseen = [place for place in known.keys() - seen if not only or place[0] in only]
    gone = {place for place in unseen if place[0] not in denied and "" not in denied}
    return _FolderScan(len(seen), changed, gone, problems)


class _TrialFolder(NamedTuple):
    """A trial folder, with a stamp that changes when its result does. No Path: there are ten thousand of them."""

    job: str
    name: str
    path: str
    stamp: str


def _trial_folders(
    runs: Path, denied: set[str], *, links: bool = False, only: tuple[str, ...] = ()
) -> Iterator[_TrialFolder]:
    """Every trial folder below `runs`. `denied` gets the jobs that may not be looked into; "": not even `runs`.

    With `links`, a job may be a link to one that lies elsewhere; `only` names the jobs that are looked into.
    """
    for job in _folders(runs, denied, "", links=links):
        if only and job.name not in only:
            continue
        for entry in _folders(job.path, denied, job.name):
            stamp = _stamp(entry.path)
            if stamp is not None:
                yield _TrialFolder(job.name, entry.name, entry.path, stamp)


def _read(found: _TrialFolder, secrets: Secrets) -> TrialReading:
    if found.stamp.startswith(_DENIED):
        reason = found.stamp.removeprefix(_DENIED)
        return TrialReading(state=ReadState.UNREADABLE, name=found.name, job=found.job, reason=reason)
    return read_trial(Path(found.path), profile=profile_of(found.job), secrets=secrets)


def _still_there(kept: _TrialFolder, batch: Batch) -> bool:
    """Return whether a try that was set aside is also where it was: Harbor was killed before it could remove it."""
    original = batch.runs / kept.job / kept.name.rpartition("-try")[0]
    try:
        return (Path(kept.path) / RESULT).samefile(original / RESULT)
    except OSError:
        return False


def _folders(path: str | Path, denied: set[str], name: str, *, links: bool = False) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            found = [e for e in entries if not e.name.startswith(".") and e.is_dir(follow_symlinks=links)]
    except PermissionError:
        denied.add(name)
        return []
    except OSError:
        return []
    return sorted(found, key=lambda entry: entry.name)


def _stamp(folder: str) -> str | None:
    """Size and time of the result; of the configuration while there is no result; None: not a trial."""
    for name in TRIAL_FILES:
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
    """Return what may still change in a trial without a result: why it is held, and the logs its cost is read from.

    As a digest: the agent gives its files their names, and one may be a secret.
    """
    found: list[str] = []
    for place in (folder, f"{folder}/agent"):
        try:
            with os.scandir(place) as entries:
                files = [(e.name, e.stat(follow_symlinks=False)) for e in entries if e.is_file(follow_symlinks=False)]
        except OSError:
            continue
        found += [f"{name}:{status.st_size}:{status.st_mtime_ns}" for name, status in sorted(files)]
    return blake2b(os.fsencode(";".join(found)), digest_size=16).hexdigest()


def _plan_stamp(batch: Batch) -> str:
    try:
        status = batch.plan_json.stat()
    except OSError:
        return "none"
    return f"{status.st_size}:{status.st_mtime_ns}"


class _BatchNote(NamedTuple):
    """Return the row of a batch; `problem`: why its plan cannot be read. A batch is listed either way."""

    plan: Plan | None
    values: tuple[object, ...]
    problem: str | None = None


_SETTLE = "UPDATE batches SET stamp = ? WHERE batch = ?"
_INSERT_BATCH = (
    "INSERT OR REPLACE INTO batches (batch, slug, number, name, created_at, baseline, planned, plan_stamp) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)


def _read_plan(key: str, batch: Batch, stamp: str) -> _BatchNote:
    slug = batch.folder.parent.name
    try:
        plan: Plan = read_json(batch.plan_json, Plan)
    except FileNotFoundError:
        return _BatchNote(None, (key, slug, batch.number, "a folder of Harbor jobs", None, None, None, stamp))
    except (TbenchError, OSError) as error:
        reason = error.what if isinstance(error, TbenchError) else str(error)
        return _BatchNote(None, (key, slug, batch.number, "plan.json cannot be read", None, None, None, None), reason)
    planned = sum(job.trials for job in plan.jobs)
    created = plan.provenance.created_at
    return _BatchNote(plan, (key, plan.slug, batch.number, plan.name, created, plan.baseline, planned, stamp))


def _values(key: str, reading: TrialReading, stamp: str, facts: PlanFacts, *, superseded: bool) -> dict[str, object]:
    told = reading.trial.profile if reading.trial is not None else None
    profile = told or profile_of(reading.job)
    known: dict[str, object] = {"batch": key, "stamp": stamp, "reader": READER}
    known |= {"profile": profile, "superseded": superseded}
    if reading.trial is not None:
        known |= {"record": msgspec.json.encode(reading.trial), "lessons": reading.trial.delivery.lessons}
    return trial_columns(reading) | known | facts.columns(profile, reading.dataset, reading.task)


def _insert(connection: sqlite3.Connection, trials: list[dict[str, object]]) -> None:
    columns = [column[1] for column in connection.execute("PRAGMA table_info(trials)")]
    query = f"INSERT OR REPLACE INTO trials ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608
    connection.executemany(query, ([trial.get(name) for name in columns] for trial in trials))
    keep_exposures(connection, trials)


def _remove(connection: sqlite3.Connection, places: list[tuple[str, str, str]]) -> None:
    connection.executemany("DELETE FROM trials WHERE batch = ? AND job = ? AND trial = ?", places)
    connection.executemany("DELETE FROM exposures WHERE batch = ? AND job = ? AND trial = ?", places)
