"""Questions a page asks about batches, experiments and trials: filtered, sorted, counted, a page at a time."""

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from terminalbench.decode import decode
from terminalbench.harbor.limits.accounts import over_usd
from terminalbench.index.queries import TrialRow, trial_row
from terminalbench.index.totals import ProfileTotals

_OPEN_ENDED = 10**9


@dataclass(frozen=True)
class Window:
    """The part of a list that is asked for: page `number` (from 1) of `size` entries; a size of None means all."""

    number: int = 1
    size: int | None = 50

    @property
    def limit(self) -> int:
        """Return how many rows at most."""
        return self.size or _OPEN_ENDED

    @property
    def offset(self) -> int:
        """Return how many rows are passed over."""
        return (max(1, self.number) - 1) * self.size if self.size else 0


@dataclass(frozen=True)
class SortOrder:
    """By which column a list is sorted, "" as it comes; what has no value there stands last either way."""

    column: str = ""
    descending: bool = False

    @property
    def word(self) -> str:
        """Return the order as it stands in an address: `-cost` for the largest first."""
        return f"{'-' if self.descending else ''}{self.column}"

    def sql(self, columns: Mapping[str, str]) -> str:
        """Return the beginning of an ORDER BY, "" for a column that is not known."""
        known = columns.get(self.column)
        return f"{known} IS NULL, {known} {'DESC' if self.descending else 'ASC'}, " if known else ""

    def of[T](self, items: Iterable[T], columns: Mapping[str, Callable[[T], Any]]) -> list[T]:
        """The items sorted, equal ones as they come; by a column that is not known, all as they come."""
        value = columns.get(self.column)
        if value is None:
            return list(items)
        read = [(value(item), item) for item in items]
        known = sorted((one for one in read if one[0] is not None), key=lambda one: one[0], reverse=self.descending)
        return [item for _, item in known] + [item for found, item in read if found is None]


AS_IT_COMES = SortOrder()


@dataclass(frozen=True)
class ListPage[T]:
    """One page of a list, and how long the whole list is."""

    items: list[T]
    total: int


@dataclass(frozen=True)
class BatchFilter:
    """A selection of batches: `text` is looked for in names of experiment, batch and profiles; all `labels` fit."""

    text: str = ""
    slug: str = ""
    state: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


class BatchSummary(msgspec.Struct, frozen=True):
    """One batch in a list. `version` changes whenever the index knows more of it; `labels` is JSON."""

    batch: str
    slug: str
    number: int
    name: str
    created_at: str | None
    baseline: str | None
    planned: int | None
    version: int
    trials: int
    passed: int
    failed: int
    not_measured: int
    cost_usd: float | None
    cost_unknown: int
    simulated: bool
    last_at: str | None
    profiles: list[ProfileTotals]
    labels: str | None
    budget_usd: float | None

    @property
    def over_usd(self) -> float | None:
        """Return by how much its known costs pass its budget; None when they do not."""
        return over_usd(self.budget_usd, self.cost_usd)

    @property
    def profile_names(self) -> str:
        """Its profiles in one line."""
        return " ".join(counts.profile for counts in self.profiles)

    @property
    def best_first(self) -> list[ProfileTotals]:
        """Its profiles by pass rate; those without one last."""
        return sorted(self.profiles, key=lambda totals: -1.0 if totals.rate is None else totals.rate, reverse=True)

    @property
    def no_model(self) -> bool:
        """Return whether none of its profiles calls a model: it costs nothing, which is not unknown."""
        return bool(self.profiles) and all(counts.no_model for counts in self.profiles)

    @property
    def oracle(self) -> bool:
        """Return whether one of its profiles sees the hidden verdict."""
        return any(counts.oracle for counts in self.profiles)

    @property
    def complete(self) -> bool:
        """Return whether everything planned has a verdict."""
        return self.not_measured == 0 and self.trials > 0


_JOINED = "FROM batches b JOIN summaries s USING (batch)"
_SUMMARY = f"SELECT {', '.join(BatchSummary.__struct_fields__)} {_JOINED}"


BATCH_ORDERS = {
    "batch": "b.slug || '/' || printf('%09d', b.number)", "measured": "s.passed + s.failed",
    "not_measured": "s.not_measured", "cost": "s.cost_usd", "created": "b.created_at",
}  # fmt: skip
"""What a list of batches can be sorted by."""


def find_batches(
    connection: sqlite3.Connection,
    wanted: BatchFilter,
    window: Window,
    live: Sequence[str] = (),
    by: SortOrder = AS_IT_COMES,
) -> ListPage[BatchSummary]:
    """Batches, sorted by a column, else the live ones first; then the newest."""
    where, values = _batch_conditions(wanted, live)
    total = connection.execute(f"SELECT count(*) {_JOINED}{where}", values)
    count = total.fetchone()[0]
    first = by.sql(BATCH_ORDERS)
    order = (
        f" ORDER BY {first}b.batch IN ({_marks(live)}) DESC, b.created_at DESC, b.slug, b.number DESC LIMIT ? OFFSET ?"
    )
    rows = connection.execute(_SUMMARY + where + order, [*values, *live, window.limit, window.offset])
    return ListPage([_summary(row) for row in rows], count)


def _batch_conditions(wanted: BatchFilter, live: Sequence[str]) -> tuple[str, list[Any]]:
    conditions: list[str] = []
    values: list[Any] = []
    if wanted.text:
        conditions.append(
            r"((b.slug || ' ' || coalesce(b.name, '') || ' ' || b.batch) LIKE ? ESCAPE '\' OR EXISTS "
            r"(SELECT 1 FROM json_each(s.profiles) p WHERE json_extract(p.value, '$.profile') LIKE ? ESCAPE '\'))"
        )
        values += [_contains(wanted.text)] * 2
    if wanted.slug:
        conditions.append("b.slug = ?")
        values.append(wanted.slug)
    for name, value in wanted.labels.items():
        conditions.append("EXISTS (SELECT 1 FROM json_each(b.labels) l WHERE l.key = ? AND l.value = ?)")
        values += [name, value]
    if wanted.state == "live":
        conditions.append(f"b.batch IN ({_marks(live)})")
        values += live
    elif wanted.state == "complete":
        conditions.append("s.not_measured = 0 AND s.trials > 0")
    elif wanted.state == "incomplete":
        conditions.append(f"s.not_measured > 0 AND b.batch NOT IN ({_marks(live)})")
        values += live
    return _where(conditions), values


def find_batch(connection: sqlite3.Connection, batch: str) -> BatchSummary | None:
    """One batch by its key, None when the index does not know it."""
    row = connection.execute(f"{_SUMMARY} WHERE b.batch = ?", (batch,)).fetchone()
    return _summary(row) if row is not None else None


class ExperimentSummary(msgspec.Struct, frozen=True):
    """All batches of one experiment together."""

    slug: str
    name: str
    batches: int
    trials: int
    passed: int
    failed: int
    cost_usd: float | None
    cost_unknown: int
    newest: str | None
    newest_batch: str


EXPERIMENT_ORDERS = {name: name for name in ("slug", "batches", "trials", "passed", "failed", "cost_usd", "newest")}
"""What a list of experiments can be sorted by."""


def find_experiments(
    connection: sqlite3.Connection, text: str, window: Window, by: SortOrder = AS_IT_COMES
) -> ListPage[ExperimentSummary]:
    """Experiments, sorted by a column, then the one with the newest batch first."""
    where = r" WHERE (b.slug || ' ' || coalesce(b.name, '')) LIKE ? ESCAPE '\'" if text else ""
    values = [_contains(text)] if text else []
    joined = f"{_JOINED}{where}"
    count = connection.execute(f"SELECT count(DISTINCT b.slug) {joined}", values).fetchone()[0]
    query = (
        "SELECT b.slug, max(b.name) AS name, count(*) AS batches, sum(s.trials) AS trials, sum(s.passed) AS passed, "  # noqa: S608
        "sum(s.failed) AS failed, sum(s.cost_usd) AS cost_usd, sum(s.cost_unknown) AS cost_unknown, "
        "max(b.created_at) AS newest, "
        "(SELECT c.batch FROM batches c WHERE c.slug = b.slug ORDER BY c.number DESC LIMIT 1) AS newest_batch "
        f"{joined} GROUP BY b.slug ORDER BY {by.sql(EXPERIMENT_ORDERS)}newest DESC, b.slug LIMIT ? OFFSET ?"
    )
    rows = connection.execute(query, [*values, window.limit, window.offset])
    return ListPage([ExperimentSummary(**dict(row)) for row in rows], count)


def _summary(row: sqlite3.Row) -> BatchSummary:
    values = dict(row)
    values["simulated"] = bool(values["simulated"])
    values["profiles"] = decode(values["profiles"], list[ProfileTotals])
    return BatchSummary(**values)


@dataclass(frozen=True)
class TrialFilter:
    """A selection of trials. An empty field means any; `outcome` "unfinished" are those without a result."""

    text: str = ""
    batch: str = ""
    profile: str = ""
    task: str = ""
    outcome: str = ""
    error_class: str = ""


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
    for name in ("batch", "profile", "error_class"):
        if getattr(wanted, name):
            conditions.append(f"{name} = ?")
            values.append(getattr(wanted, name))
    if wanted.task:  # a part of a name is enough, unless it is the name of a task
        conditions.append(
            r"(task = ? OR (task LIKE ? ESCAPE '\' AND NOT EXISTS (SELECT 1 FROM trials same WHERE same.task = ?)))"
        )
        values += [wanted.task, _contains(wanted.task), wanted.task]
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
        values.append(_contains(wanted.text))
    where = _where(conditions)
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


def _contains(text: str) -> str:
    """A pattern of LIKE (escape: a backslash) that finds the text anywhere."""
    escaped = text.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    return f"%{escaped}%"


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))


def _where(conditions: list[str]) -> str:
    """The conditions as a WHERE, "" without any."""
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""
