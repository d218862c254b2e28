"""Jobs that no plan describes: which treatments their trials are, what those are called, and which trials are copies.

A treatment is what the trial's configuration says (`harbor.read.treatment`), and the version of the agent where all
trials of a job agree on one. It is called by its agent and model, `claude-code/claude-sonnet-4-5`; the second one of
that name `...@2`, in the order they started. A copied folder holds trials with the ids of others: these count once.
"""

import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from terminalbench.decode import decode
from terminalbench.errors import UserError
from terminalbench.experiments.departures import GrownFrom
from terminalbench.experiments.plan import (
    Departure,
    DepartureKind,
    JobSpec,
    Plan,
    PlannedTask,
    ProfileRecord,
    Provenance,
)
from terminalbench.experiments.profile_changes import differences
from terminalbench.experiments.tables import RunTable
from terminalbench.harbor.read.treatment import treatment_id
from terminalbench.index.places import ForeignJobs, profile_of
from terminalbench.index.queries import BatchView, CellState, TrialRow, batch_rows, row_outcome
from terminalbench.records.trial import TaskRef
from terminalbench.text.foreign import flat, short
from terminalbench.text.numbers import plural, some

_LONGEST = 60
_SHOWN = 4
_GROWN = "tasks were tried again by jobs that followed others: {} times at which the result could be looked at"
_NUMBER = re.compile(r"@\d+$")


class ForeignProfiles(NamedTuple):
    """The profiles of foreign trials, in the order they started, and which profile each trial is of, by its key."""

    records: list[ProfileRecord]
    profile: dict[str, str]


class _FoundProfile(NamedTuple):
    """A profile before it has its own name: what it is called with others, its id and its content."""

    called: str
    id: str
    content: dict[str, Any]


def treated(
    rows: Sequence[TrialRow], contents: Mapping[str, dict[str, Any]], known: Sequence[ProfileRecord] = ()
) -> ForeignProfiles:
    """Find the profiles of trials; `contents` are their treatments by id, `known` profiles keep their names.

    A trial whose configuration cannot be read is of the only treatment of its job, else of a profile that is called as
    its job. A job whose name ends with a profile of ours (the `runs` of a batch without its plan) is of that one.
    """
    of_job: dict[str, set[str]] = defaultdict(set)
    versions: dict[tuple[str, str], set[str]] = defaultdict(set)
    agents: dict[str, str] = {}
    for row in rows:
        if row.treatment is None:
            continue
        of_job[row.job].add(row.treatment)
        if row.trial is not None and row.trial.agent_version is not None:
            for place in (row.job, ""):
                versions[place, row.treatment].add(row.trial.agent_version)
        if row.trial is not None and row.trial.agent is not None:
            agents.setdefault(row.treatment, row.trial.agent)
    seen: dict[tuple[str, str | None], _FoundProfile] = {}
    told = [_FoundProfile(_NUMBER.sub("", one.key), one.id, one.content) for one in known]
    found = {(one.called, one.id): one for one in told}
    of_row: dict[str, tuple[str, str]] = {}
    for row in sorted(rows, key=_started):
        given = {row.treatment} if row.treatment is not None else of_job[row.job]
        base = next(iter(given)) if len(given) == 1 else None
        if (row.job, base) not in seen:
            content = dict(contents.get(base or "", {}))
            # A job whose trials never got so far as to tell is of the version of the others, if that is one.
            ran = (versions[row.job, base] or versions["", base]) if base is not None else ()
            if "agent_version" not in content and len(ran) == 1:
                content["agent_version"] = next(iter(ran))
            called = profile_of(row.job) or (row.job if base is None else _name(agents.get(base), content))
            identity = treatment_id(content) if base is not None else f"job:{row.job}"
            seen[row.job, base] = _FoundProfile(called, identity, content)
        one = seen[row.job, base]
        of_row[row.key] = (one.called, one.id)
        found.setdefault(of_row[row.key], one)
    names = _distinct({key: one.called for key, one in found.items()})
    first = {one.called: one for one in reversed(found.values())}
    records = [_record(names[key], one, first[one.called]) for key, one in found.items()]
    return ForeignProfiles(records, {place: names[key] for place, key in of_row.items()})


def _started(row: TrialRow) -> tuple[bool, str, str, str]:
    at = row.trial.started_at if row.trial is not None else None
    return (at is None, at or "", row.job, row.name)


def _name(agent: str | None, content: Mapping[str, Any]) -> str:
    """Agent and model as people say them: without provider, module and class."""
    agent = agent or str(content.get("agent", "")).rpartition(":")[2]
    model = str(content.get("model") or "").rpartition("/")[2]
    return short("/".join(part for part in (agent, model) if part), _LONGEST)


def _distinct[K](called: Mapping[K, str]) -> dict[K, str]:
    """A name for each treatment: that of its agent and model, with a number from the second one on."""
    taken: dict[str, int] = defaultdict(int)
    names = {}
    for key, name in called.items():
        taken[name] += 1
        names[key] = name if taken[name] == 1 else f"{name}@{taken[name]}"
    return names


def _record(name: str, one: _FoundProfile, first: _FoundProfile) -> ProfileRecord:
    """A treatment as a profile; of one that shares its name, what makes it another than the first."""
    lines = [flat(other.summary(), 2 * _LONGEST) for other in differences(first.content, one.content)]
    return ProfileRecord(name, one.id, one.content, some(lines, _SHOWN) or None)


def copies(rows: Iterable[TrialRow], seen: set[tuple[str, ...]] | None = None) -> list[TrialRow]:
    """The trials that are others once more, by id, name and start. `seen` holds and gets those that count."""
    seen = set() if seen is None else seen
    found = []
    for row in sorted(rows, key=_started):
        if row.trial is None:
            continue
        mark = (row.trial.id, row.trial.name, row.trial.started_at or "")
        if mark in seen:
            found.append(row)
        seen.add(mark)
    return found


def contents_of(connection: sqlite3.Connection) -> dict[str, dict[str, Any]]:
    """Every treatment that the index has met, by id."""
    return {row[0]: decode(row[1]) for row in connection.execute("SELECT id, content FROM treatments")}


def keep_treatments(connection: sqlite3.Connection, contents: Mapping[str, Mapping[str, Any]]) -> None:
    """Note treatments by their ids."""
    query = "INSERT OR IGNORE INTO treatments (id, content) VALUES (?, ?)"
    connection.executemany(query, [(key, msgspec.json.encode(content).decode()) for key, content in contents.items()])


def keep_profiles(connection: sqlite3.Connection, key: str) -> None:
    """Write beside each foreign trial which profile it is of and whether it is a copy. Inside a transaction."""
    rows = batch_rows(connection, key)
    found = treated(rows, contents_of(connection))
    ids = {record.key: record.id for record in found.records}
    again = {row.key for row in copies(rows)}
    connection.executemany(
        "UPDATE trials SET profile = ?, profile_id = ?, copy = ? WHERE batch = ? AND job = ? AND trial = ?",
        [(name := found.profile[row.key], ids[name], row.key in again, key, row.job, row.name) for row in rows],
    )
    connection.executemany(
        "INSERT OR REPLACE INTO profiles (id, agent, model) VALUES (?, ?, ?)",
        [(record.id, record.content.get("agent"), record.content.get("model")) for record in found.records],
    )
    keep_treatments(connection, {record.id: record.content for record in found.records})


def view_jobs(batch: ForeignJobs, connection: sqlite3.Connection, known: Sequence[ProfileRecord] = ()) -> BatchView:
    """Harbor jobs without a plan: every trial is one that was planned, in the order they started.

    `known` are the profiles of other folders that are looked at together.
    """
    rows = [row for row in batch_rows(connection, ".") if not batch.only or row.job in batch.only]
    again = copies(rows)
    found = treated(rows, contents_of(connection), known)
    aside = {row.key for row in again}
    cells: dict[tuple[str, str, str], list[TrialRow]] = defaultdict(list)
    for row in rows:
        if row.key not in aside:
            named = msgspec.structs.replace(row, profile=found.profile[row.key])
            cells[named.profile or "", row.dataset or "", row.task or row.name].append(named)
    if not cells:
        raise UserError("contains no trials", where=str(batch.folder))
    states = [
        CellState(profile, TaskRef(task, dataset), attempt, row_outcome(row), row, _reason(row))
        for (profile, dataset, task), mine in cells.items()
        for attempt, row in enumerate(mine, start=1)
    ]
    there = {cell.profile for cell in states}
    records = tuple(record for record in found.records if record.key in there)
    jobs = [_job(record, [cell for cell in states if cell.profile == record.key]) for record in records]
    name = "/".join((batch.folder.name, *batch.only)) if len(batch.only) < 2 else batch.folder.name
    starts = [row.trial.started_at for row in rows if row.trial is not None and row.trial.started_at]
    grown = _times(rows, list(cells.values()))
    plan = Plan(
        name,
        name,
        0,
        str(batch.folder),
        records[0].key,
        tuple(jobs),
        records,
        settings=RunTable(container_env=""),  # it stands in the content of each profile
        grown_from=tuple(GrownFrom(attempts) for attempts in grown),
        departures=(Departure(DepartureKind.ATTEMPTS, _GROWN.format(len(grown) + 1)),) if grown else (),
        provenance=Provenance(created_at=min(starts, default=None)),
    )
    return BatchView(name, plan, states, [], notes=(*_told_apart(records), *copies_note(again, name)))


def _times(rows: Sequence[TrialRow], cells: Sequence[Sequence[TrialRow]]) -> list[int]:
    """Return how many attempts there were each time before a job tried a task again of which an earlier job had ended.

    Jobs side by side, or of different tasks, were one look; a night that follows a night was there to be looked at.
    """
    began: dict[str, str] = {}
    ended: dict[str, str] = {}
    for row in rows:
        if row.trial is not None and row.trial.started_at is not None:
            start = row.trial.started_at
            began[row.job] = min(start, began.get(row.job, start))
            ended[row.job] = max(start, row.trial.finished_at or "", ended.get(row.job, ""))
    found = set()
    for mine in cells:
        for attempts, (one, other) in enumerate(pairwise(mine), start=1):
            known = one.job != other.job and one.job in ended and other.job in began
            if known and ended[one.job] <= began[other.job]:
                found.add(attempts)
    return sorted(found)


def copies_note(again: Sequence[TrialRow], where: str) -> tuple[str, ...]:
    """The line that says how many trials of a folder are others once more, and in which jobs."""
    if not again:
        return ()
    jobs = some(list(dict.fromkeys(row.job for row in again)), _SHOWN)
    return (
        f"{where}: {plural(len(again), 'trial')} in {jobs} have the same id as another trial, so they are copies "
        f"and counted once",
    )


def _told_apart(records: Sequence[ProfileRecord]) -> list[str]:
    return [
        f"{one.key} has the same name but different content: {one.description}" for one in records if one.description
    ]


def _job(record: ProfileRecord, cells: Sequence[CellState]) -> JobSpec:
    tasks = tuple(PlannedTask(ref, ref.dataset, {}) for ref in dict.fromkeys(cell.task for cell in cells))
    return JobSpec(record.key, record.key, record.id, max(cell.attempt for cell in cells), tasks)


def _reason(row: TrialRow) -> str | None:
    return row.trial.error_message if row.trial is not None else row.reason
