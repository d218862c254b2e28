"""Questions a page asks about trials: filtered, sorted, counted, a page at a time."""

import sqlite3
from dataclasses import dataclass
from typing import Any

import msgspec

from terminalbench.index.pages import AS_IT_COMES, ListPage, SortOrder, Window, contains, where_of
from terminalbench.index.queries import TrialRow, trial_row


@dataclass(frozen=True)
class TrialFilter:
    """A selection of trials. An empty field means any; `outcome` "unfinished" are those without a result."""

    text: str = ""
    batch: str = ""
    profile: str = ""
    task: str = ""
    outcome: str = ""
    error_class: str = ""


_EQUAL = ("batch", "profile", "error_class")


_FAILURE = (
    "(SELECT failure_class(f.found) FROM findings f WHERE (f.batch, f.job, f.trial, f.analyzer) = "
    "(trials.batch, trials.job, trials.trial, 'failure'))"
)
TRIAL_ORDERS = {
    "trial": "trial", "outcome": "outcome", "profile": "profile", "batch": "batch", "task": "task",
    "attempt": "attempt", "steps": "agent_steps", "cost": "cost_usd", "started": "started_at", "failure": _FAILURE,
    "tokens": "input_tokens + output_tokens",
    "time": "julianday(finished_at) - julianday(started_at)",
}  # fmt: skip
"""What a list of trials can be sorted by."""


def find_trials(
    connection: sqlite3.Connection, wanted: TrialFilter, window: Window, by: SortOrder = AS_IT_COMES
) -> ListPage[tuple[str, TrialRow]]:
    """Trials with their batch, sorted by a column, then the newest first."""
    conditions: list[str] = []
    values: list[Any] = []
    for name in _EQUAL:
        if getattr(wanted, name):
            conditions.append(f"{name} = ?")
            values.append(getattr(wanted, name))
    if wanted.task:  # a part of a name is enough, unless it is the name of a task
        conditions.append(
            r"(task = ? OR (task LIKE ? ESCAPE '\' AND NOT EXISTS (SELECT 1 FROM trials same WHERE same.task = ?)))"
        )
        values += [wanted.task, contains(wanted.task), wanted.task]
    if wanted.outcome == "unfinished":
        conditions.append("outcome IS NULL")
    elif wanted.outcome:
        conditions.append("outcome = ?")
        values.append(wanted.outcome)
    if wanted.text:
        conditions.append(
            "rowid IN (SELECT rowid FROM trials INDEXED BY trials_by_words WHERE "
            r"(trial || ' ' || coalesce(error_message, '') || ' ' || coalesce(model, '')) LIKE ? ESCAPE '\')"
        )
        values.append(contains(wanted.text))
    where = where_of(conditions)
    count = connection.execute(f"SELECT count(*) FROM trials{where}", values).fetchone()[0]  # noqa: S608
    if by.column == "failure":
        connection.create_function("failure_class", 1, _failure_class, deterministic=True)
    query = f"SELECT * FROM trials{where} ORDER BY {by.sql(TRIAL_ORDERS)}started_at DESC LIMIT ? OFFSET ?"  # noqa: S608
    rows = connection.execute(query, [*values, window.limit, window.offset])
    return ListPage([(row["batch"], trial_row(row)) for row in rows], count)


def find_trial(connection: sqlite3.Connection, batch: str, job: str, name: str) -> TrialRow | None:
    """One trial by its place, None when the index does not know it."""
    query = "SELECT * FROM trials WHERE batch = ? AND job = ? AND trial = ?"
    row = connection.execute(query, (batch, job, name)).fetchone()
    return trial_row(row) if row is not None else None


def task_trials(connection: sqlite3.Connection, batch: str, dataset: str | None, task: str | None) -> list[TrialRow]:
    """Every trial at one task of a batch, profile by profile."""
    query = "SELECT * FROM trials WHERE batch = ? AND dataset IS ? AND task IS ? ORDER BY profile, started_at, trial"
    return [trial_row(row) for row in connection.execute(query, (batch, dataset, task))]


def _failure_class(found: bytes) -> str | None:
    """The class in the kept findings of the analyzer `failure`."""
    items = msgspec.msgpack.decode(found, type=list[tuple[str, Any, Any, Any]])
    return next((value for name, value, _, _ in items if name == "failure_class"), None)


def failure_class(connection: sqlite3.Connection, batch: str, row: TrialRow) -> str | None:
    """Return how a trial failed, as an analysis has found; None when there was none, or it did not fail."""
    query = "SELECT found FROM findings WHERE batch = ? AND job = ? AND trial = ? AND analyzer = 'failure'"
    kept = connection.execute(query, (batch, row.job, row.name)).fetchone()
    return _failure_class(kept[0]) if kept is not None else None


def choices(connection: sqlite3.Connection, column: str) -> list[str]:
    """The values a column of the trials holds, for a filter."""
    if column not in ("profile", "task", "error_class", "batch"):
        raise ValueError(column)
    query = f"SELECT DISTINCT {column} FROM trials WHERE {column} IS NOT NULL ORDER BY {column}"  # noqa: S608
    return [row[0] for row in connection.execute(query)]
