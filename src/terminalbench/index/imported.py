"""Results of other tools as a batch: a plan of what they hold, and a trial for each row.

An imported batch has both on disk, and the index reads it like any other. A file that is only compared has them in
memory: `ForeignFile`.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from terminalbench.errors import TbenchError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import ImportRecord, JobSpec, Plan, PlannedTask, ProfileRecord, Provenance
from terminalbench.experiments.tables import RunTable
from terminalbench.formats.row import ForeignResults, ForeignRow
from terminalbench.harbor.read.foreign_row import trial_of
from terminalbench.harbor.read.treatment import treatment_id
from terminalbench.index.queries import BatchView, TrialRow, assign_cells
from terminalbench.json_files import BadLine, each_jsonl
from terminalbench.records.trial import ReadState, TaskRef, Trial, TrialReading
from terminalbench.text.numbers import some

_UNSAFE = re.compile(r"[^A-Za-z0-9.-]+")
_LONGEST = 60


class ImportedTrials(NamedTuple):
    """The content of a source, as a plan and its trials."""

    plan: Plan
    trials: list[Trial]


@dataclass(frozen=True)
class ForeignFile(Batch):
    """A file or a folder of results of another tool, compared as it lies there: nothing of it is kept."""

    held: ImportedTrials | None = field(default=None, compare=False)

    def view(self) -> BatchView:
        """Its plan and the state of its cells."""
        if self.held is None:
            raise TbenchError("could not be read", where=str(self.folder))
        plan, trials = self.held
        rows = [
            TrialRow(one.job, one.name, ReadState.FINISHED, None, one.profile, one.task, one.dataset, one, one.usage)
            for one in trials
        ]
        cells, aside = assign_cells(plan, rows)
        return BatchView(plan.name, plan, cells, aside, notes=plan.imported.notes_now() if plan.imported else ())


def imported_trials(results: ForeignResults, record: ImportRecord, slug: str, name: str) -> ImportedTrials:
    """The batch that rows come to: every attempt is one that was planned, in the order of the source."""
    jobs = _names(list(dict.fromkeys(row.profile for row in results.rows)))
    rows: dict[str, list[ForeignRow]] = defaultdict(list)
    for row in results.rows:
        rows[row.profile].append(row)
    trials: list[Trial] = []
    used: set[tuple[str, str]] = set()
    for place, row in enumerate(results.rows):
        job = jobs[row.profile]
        called = f"{_safe(row.task)}__{row.attempt}"
        if (job, called) in used:
            called = f"{called}-{place}"
        used.add((job, called))
        trials.append(trial_of(row, job, called, f"{results.digest[:16]}:{place}"))
    profiles = tuple(_profile(profile, mine, results) for profile, mine in rows.items())
    ids = {one.key: one.id for one in profiles}
    starts = [row.started_at for row in results.rows if row.started_at is not None]
    plan = Plan(
        slug,
        name,
        0,
        "",
        profiles[0].key,
        tuple(_job(jobs[profile], profile, ids[profile], mine) for profile, mine in rows.items()),
        profiles,
        settings=RunTable(container_env=""),
        provenance=Provenance(created_at=min(starts, default=record.at)),
        imported=record,
    )
    return ImportedTrials(plan, trials)


def read_trials(batch: Batch, record: ImportRecord) -> list[TrialReading]:
    """The trials of an imported batch; a file that is gone or torn is an error, for nothing else has them."""
    file = batch.imported / Path(record.file).name
    hint = "tbench import --update reads the source again"
    try:
        lines = list(each_jsonl(file, Trial))
    except OSError as error:
        raise TbenchError(f"cannot be read: {error.strerror}", where=str(file), hint=hint) from None
    bad = [line for line in lines if isinstance(line, BadLine)]
    if bad or len(lines) != record.rows:
        what = (
            f"line {bad[0].number} cannot be read: {bad[0].reason}"
            if bad
            else f"has {len(lines)} of {record.rows} trials"
        )
        raise TbenchError(what, where=str(file), hint=hint)
    return [TrialReading.of(one, one.name) for one in lines]


def _profile(name: str, rows: Sequence[ForeignRow], results: ForeignResults) -> ProfileRecord:
    """A profile of which only the name is known, and agent and model where all its rows agree on one.

    One that is called after its file is another treatment in each file.
    """
    agents, models = ({value for row in rows if (value := getattr(row, key))} for key in ("agent", "model"))
    content: dict[str, object] = {"imported": name}
    content |= {"file": results.digest} if results.guessed else {}
    content |= {"agent": next(iter(agents))} if len(agents) == 1 else {}
    content |= {"model": next(iter(models))} if len(models) == 1 else {}
    return ProfileRecord(name, treatment_id(content), content)


def _job(job: str, profile: str, identity: str, rows: Sequence[ForeignRow]) -> JobSpec:
    told: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in rows:
        if row.family is not None:
            told[row.dataset, row.task].add(row.family)
    families = {place: next(iter(found)) for place, found in told.items() if len(found) == 1}
    return planned_job(job, profile, identity, Counter((row.dataset, row.task) for row in rows), families)


def planned_job(
    job: str,
    profile: str,
    identity: str,
    counts: Mapping[tuple[str, str], int],
    families: Mapping[tuple[str, str], str],
) -> JobSpec:
    """The job of a profile with as many attempts at each task (by dataset and id) as there are."""
    least = min(counts.values())
    tasks = tuple(
        PlannedTask(
            TaskRef(task, dataset, families.get((dataset, task))),
            dataset,
            {},
            extra=count - least,
        )
        for (dataset, task), count in counts.items()
    )
    return JobSpec(job, profile, identity, least, tasks)


def _names(profiles: Sequence[str]) -> dict[str, str]:
    """A job for each profile, whose name may be part of a path."""
    found: dict[str, str] = {}
    for profile in profiles:
        name = _safe(profile)
        found[profile] = name if name not in found.values() else f"{name}-{_digest(profile)}"
    return found


def _safe(text: str) -> str:
    name = _UNSAFE.sub("-", text).strip("-.")
    short = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 9]}-{_digest(text)}"
    return short or _digest(text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def differing(old: Sequence[Trial], new: Sequence[Trial]) -> str | None:
    """Return what an import that is made again changes, in words; None when nothing does."""
    before, now = ({(t.profile, t.dataset, t.task, t.attempt): _told(t) for t in found} for found in (old, new))
    counts = {
        "new": len(now.keys() - before.keys()),
        "gone": len(before.keys() - now.keys()),
        "changed": sum(before[key] != now[key] for key in before.keys() & now.keys()),
    }
    return some([f"{count} {what}" for what, count in counts.items() if count]) or None


def _told(trial: Trial) -> Trial:
    return msgspec.structs.replace(trial, id="", name="")
