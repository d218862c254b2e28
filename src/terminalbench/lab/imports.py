"""Taking results of other tools in: as a batch that is kept, or for one comparison.

    <results>/<name>/0/plan.json                   what they hold and where they come from: `imported`
                       imported/<digest>.jsonl     the trials, one a line
                       imported/source/            the files that were read, when they were to be copied

A source has one batch, however often it is imported. The plan is written last: an import that is killed leaves none.
"""

import fcntl
import hashlib
import os
import re
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from terminalbench.errors import TbenchError, UserError
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.experiments.plan import HARBOR, ImportRecord, Plan
from terminalbench.experiments.project import current_project
from terminalbench.experiments.tables import SLUG, SLUG_DOC
from terminalbench.files import read_plain, write_bytes, write_lines
from terminalbench.formats.row import ForeignResults, ReadOptions
from terminalbench.formats.source import GENERIC, LIMIT, digest_of
from terminalbench.harbor.read import RESULT
from terminalbench.index.imported import ImportedTrials, differing, imported_trials, planned_job, read_trials
from terminalbench.index.places import ForeignJobs, find_jobs, plan_or_none
from terminalbench.index.results import open_view
from terminalbench.json_files import encode_line, write_json
from terminalbench.lab.arguments import checked, path_of
from terminalbench.modes import make_folder
from terminalbench.secrets.values import Secrets
from terminalbench.strict import is_there

_UNNAMED = "imported"


class ImportState(StrEnum):
    """The result of an import."""

    NEW = "new"
    SAME = "same"
    """The same source was imported before: nothing was written."""
    UPDATED = "updated"


class FinishedImport(NamedTuple):
    """An import: its batch, its plan, what is recorded of its source, and what changed since it was imported before."""

    batch: Batch
    plan: Plan
    record: ImportRecord
    state: ImportState
    difference: str | None = None


class ImportRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The wishes for an import: what the files do not say, its name, whether to copy files and read them again."""

    reading: ReadOptions = ReadOptions()
    name: str | None = None
    copy: bool = False
    update: bool = False


class _Held(NamedTuple):
    """The content of a source: its plan and trials, what is recorded of it, and the files they were read from."""

    trials: ImportedTrials
    record: ImportRecord
    files: list[Path]


class _EarlierImport(NamedTuple):
    """The batch of a source that was imported before."""

    batch: Batch
    plan: Plan
    record: ImportRecord


@checked
def import_results(
    source: Path | str, results: Path | str | None = None, request: ImportRequest | None = None
) -> FinishedImport:
    """Make a batch of the results of another tool, or of Harbor jobs, that a file or a folder holds.

    The same source again changes nothing; one that has changed is an error that says how, unless it is to be updated.
    """
    request = request or ImportRequest()
    path = Path(source).resolve()
    if not is_there(path):
        raise UserError("there is no such file or folder", where=str(source))
    if request.name is not None and not re.fullmatch(SLUG, request.name):
        raise UserError(f'--name "{request.name}": {SLUG_DOC}')
    root = (path_of(results) or current_project() / "results").resolve()
    held = _read(path, request.reading, str(source))
    make_folder(root)
    with _alone(root):
        before = _imported_before(root, held.record, request.name)
        if before is None:
            return _write_new(root, path, held, request)
        return _again(before, held, request)


def read_foreign(path: Path, reading: ReadOptions, shown: str) -> ImportedTrials:
    """Return what a file or a folder holds, in memory."""
    return _read(path, reading, shown).trials


def _read(path: Path, reading: ReadOptions, shown: str) -> _Held:
    jobs = find_jobs(path) if path.is_dir() and reading.format in (None, HARBOR) else None
    if jobs is not None:
        return _read_jobs(path, jobs, reading)
    from terminalbench.formats.source import read_results

    found = _concealed(read_results(path, reading))
    record = _record(path, found.format, found.digest, reading, found.files)
    record = replace(record, rows=len(found.rows), rejected=found.rejected, notes=tuple(found.notes))
    slug = _slug(path)
    return _Held(imported_trials(found, record, slug, shown), record, found.files)


def _concealed(found: ForeignResults) -> ForeignResults:
    """The results without the secrets of this environment, which a message of an error may hold."""
    secrets = Secrets.of_environment()
    rows = [replace(row, error=secrets.hide(row.error)) if row.error is not None else row for row in found.rows]
    return replace(found, rows=rows)


def _record(path: Path, form: str, digest: str, reading: ReadOptions, files: list[Path]) -> ImportRecord:
    options = hashlib.sha256(msgspec.json.encode(reading, order="sorted")).hexdigest()[:16]
    stats = {str(file): file.stat() for file in files}
    return ImportRecord(
        format=form,
        source=str(path),
        digest=digest,
        options_digest=options,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        rows=0,
        file=f"{digest[:16]}-{options}.jsonl",
        files={name: (status.st_size, status.st_mtime_ns) for name, status in stats.items()},
    )


def _read_jobs(path: Path, jobs: ForeignJobs, reading: ReadOptions) -> _Held:
    """Harbor jobs: their trials as they are read today, with the profiles that are known of their treatments."""
    view = open_view(jobs)
    ended = [(cell, cell.row.trial) for cell in view.cells if cell.row is not None and cell.row.trial is not None]
    if not ended:
        raise UserError("no trial of these jobs has ended", where=str(path))
    rows = [cell.row for cell, _ in ended if cell.row is not None]
    files = [jobs.folder / row.folder / RESULT for row in rows if (jobs.folder / row.folder / RESULT).is_file()]
    record = _record(path, HARBOR, digest_of(files, path), reading, files)
    trials = [
        replace(trial, profile=cell.profile, attempt=cell.attempt, dataset=cell.task.dataset) for cell, trial in ended
    ]
    left = len(view.cells) - len(ended)
    rejected = {"the trial has not ended, or is unreadable": left} if left else {}
    record = replace(record, rows=len(trials), rejected=rejected, notes=tuple(view.notes))
    counts = {
        job.profile: Counter((t.dataset or "", t.task) for t in trials if t.profile == job.profile)
        for job in view.plan.jobs
    }
    jobs_held = tuple(
        planned_job(j.name, j.profile, j.profile_id, counts[j.profile], {}) for j in view.plan.jobs if counts[j.profile]
    )
    there = {job.profile for job in jobs_held}
    profiles = tuple(one for one in view.plan.profiles if one.key in there)
    plan = replace(
        view.plan,
        slug=_slug(path),
        name=path.name,
        imported=record,
        jobs=jobs_held,
        profiles=profiles,
        baseline=profiles[0].key,
    )
    return _Held(ImportedTrials(plan, trials), record, files)


def _slug(path: Path) -> str:
    """Return what a batch of a source is called: as its file, or its folder where the file's name says nothing."""
    nameless = path.is_file() and path.stem.lower() in GENERIC
    stem = path.parent.name if nameless else path.stem if path.is_file() else path.name
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem)[:80].strip("-.") or _UNNAMED


@contextmanager
def _alone(root: Path) -> Generator[None]:
    """Hold the results folder against another import."""
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _imported_before(root: Path, now: ImportRecord, name: str | None) -> _EarlierImport | None:
    """The batch of the same source, by its place or its content; with a name, only the one called so."""
    found = None
    for folder in sorted(root.glob("*/*/imported")):
        batch = Batch(folder.parent)
        known = plan_or_none(batch)
        if known is None or known.imported is None or name not in (None, batch.folder.parent.name):
            continue
        earlier = _EarlierImport(batch, known, known.imported)
        if known.imported.source == now.source:
            return earlier
        if found is None and _is_same(known.imported, now):
            found = earlier
    return found


def _is_same(one: ImportRecord, other: ImportRecord) -> bool:
    return (one.digest, one.options_digest) == (other.digest, other.options_digest)


def _write_new(root: Path, path: Path, held: _Held, request: ImportRequest) -> FinishedImport:
    slug = request.name or held.trials.plan.slug
    if request.name is None:
        slug = next(one for one in (slug, *(f"{slug}-{n}" for n in range(2, 10_000))) if _is_free(root / one))
    elif not _is_free(root / slug):
        raise UserError(f"{slug} already holds other batches", where=str(root), hint="choose another --name")
    batch = allocate(root, slug, 0)
    name = f"{slug}, imported ({held.record.format})"
    plan = replace(held.trials.plan, slug=slug, name=name, folder=str(batch.folder))
    record = replace(held.record, copied=request.copy)
    return FinishedImport(batch, _write(batch, plan, record, held, path), record, ImportState.NEW)


def _is_free(folder: Path) -> bool:
    return not any(folder.glob("*/plan.json"))


def _again(before: _EarlierImport, held: _Held, request: ImportRequest) -> FinishedImport:
    (batch, known, old), now = before, held.record
    name = f"{batch.folder.parent.name}/{batch.folder.name}"
    if _is_same(old, now):
        make_folder(batch.runs)  # one that was killed at its very end lacks it
        if not request.update:
            return FinishedImport(batch, known, old, ImportState.SAME)
    try:
        trials = [one.trial for one in read_trials(batch, old) if one.trial is not None]
    except TbenchError:
        trials = []
    difference = differing(trials, held.trials.trials)
    if not request.update:
        why = "was read with other options" if old.digest == now.digest else "has changed"
        raise UserError(
            f"{why} since it was imported as {name} on {old.at[:10]}: {difference or 'the same trials'}",
            where=old.source,
            hint="--update replaces the import; --name NAME adds another one",
        )
    earlier = (*old.earlier, old.digest) if old.digest != now.digest else old.earlier
    record = replace(now, earlier=earlier, copied=request.copy or old.copied)
    plan = replace(held.trials.plan, slug=known.slug, name=known.name, folder=str(batch.folder))
    written = _write(batch, plan, record, held, Path(now.source))
    if old.file != now.file:
        (batch.imported / Path(old.file).name).unlink(missing_ok=True)
    return FinishedImport(batch, written, record, ImportState.UPDATED, difference)


def _write(batch: Batch, plan: Plan, record: ImportRecord, held: _Held, path: Path) -> Plan:
    """Write the trials, then the plan that names their file."""
    make_folder(batch.imported)
    if record.copied:
        _copy(held.files, path, batch.imported / "source")
    written = replace(plan, imported=record)
    write_lines(batch.imported / record.file, map(encode_line, held.trials.trials))
    write_json(batch.plan_json, written)
    make_folder(batch.runs)
    return written


def _copy(files: list[Path], path: Path, to: Path) -> None:
    for file in files:
        data = read_plain(file, LIMIT)
        if data is None:
            raise UserError("cannot be copied", where=str(file), hint="import it without --copy")
        write_bytes(to / (file.relative_to(path) if file != path and file.is_relative_to(path) else file.name), data)
