"""Questions to the index, and the state of every planned cell of a batch."""

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import asdict, astuple

from terminalbench.decode import decoder
from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import Exclusion, ExclusionKind, Plan
from terminalbench.harbor.attempt_numbers import numbered
from terminalbench.index.store import open_index
from terminalbench.json_files import read_json
from terminalbench.records.trial import Outcome, ReadState, TaskRef, Trial, TrialReading, Usage
from terminalbench.text.outcomes import RUNNING


class TrialRow(msgspec.Struct, frozen=True):
    """One trial folder as the index knows it; `trial` is None when it has not finished or cannot be read.

    `superseded` says that its folder was set aside, `counts` whether it stands for a planned trial (the `attempt`th at
    its task); None when nobody has looked yet. A `foreign` one is of a Harbor job that is not ours: its `treatment` is
    known instead of a plan, and it may be a `copy` of another.
    """

    job: str
    name: str
    state: str
    reason: str | None
    profile: str | None
    task: str | None
    dataset: str | None
    trial: Trial | None
    usage: Usage
    superseded: bool = False
    counts: bool | None = None
    attempt: int | None = None
    treatment: str | None = None
    copy: bool = False
    foreign: bool = False

    @property
    def run_again(self) -> bool:
        """Return whether another trial counts in its place, wherever its folder is."""
        again = self.superseded if self.counts is None else not self.counts
        return again and not self.copy

    @property
    def key(self) -> str:
        """Return how findings and labels name it within its batch."""
        return f"{self.job}/{self.name}"

    @property
    def unreadable(self) -> bool:
        """Return whether it has ended and its result cannot be read: a resume runs it again."""
        return self.state == ReadState.UNREADABLE

    @property
    def why(self) -> str | None:
        """Return why it has no result, with the place of a file that cannot be read."""
        return f"{self.folder}: {self.reason}" if self.unreadable else self.reason

    @property
    def folder(self) -> str:
        """Return where it is, relative to the batch folder."""
        return self.key if self.foreign else f"{'superseded' if self.superseded else 'runs'}/{self.key}"


class Rerun(StrEnum):
    """The way to run a trial again that was not measured."""

    RESUME = "resume"
    """It never ended: every resume of its batch runs it."""
    RETRY = "retry"
    """It ended without a measurement: a resume runs it when it is to retry errors."""


class CellState(msgspec.Struct, frozen=True):
    """One planned trial: how it ended, or why it did not run. `row` is the trial that counts for it, if any.

    One that is `running` has no outcome yet: it is `NOT_RUN` without a reason. One that is `spared` did not run because
    the comparisons of its profile need it no more.
    """

    profile: str
    task: TaskRef
    attempt: int
    outcome: Outcome
    row: TrialRow | None = None
    reason: str | None = None
    running: bool = False
    spared: bool = False

    @property
    def state(self) -> str:
        """Return how it stands: its outcome, or that it runs."""
        return RUNNING if self.running else self.outcome.value

    @property
    def measured(self) -> bool:
        """Return whether the verifier's word counts."""
        return self.outcome.measured

    @property
    def rerun(self) -> Rerun | None:
        """The way to run it again, unless its task is quarantined; None when it runs, was measured or is at fault."""
        if self.running:
            return None
        if not self.outcome.ended or self.row is None or self.row.trial is None:
            return Rerun.RESUME
        kind = self.row.trial.error_class
        return None if self.measured or (kind is not None and kind.of_profile) else Rerun.RETRY


class BatchView(msgspec.Struct, frozen=True):
    """A batch: its plan, the state of each planned cell, and the trials that count for none.

    `superseded` were run again: they are evidence and cost money, but are not measurements. `picked_of` is how many
    trials were planned when only some of them are looked at. `notes` say what a reader of a comparison must know.
    `live`: it runs.
    """

    batch: str
    plan: Plan
    cells: list[CellState]
    superseded: list[TrialRow]
    picked_of: int | None = None
    notes: tuple[str, ...] = ()
    live: bool = False

    @property
    def is_foreign(self) -> bool:
        """Return whether these are results that are not ours: each cell is a trial, and nothing was declared."""
        return self.plan.imported is not None or any(
            cell.row is not None and cell.row.foreign for cell in self.cells[:1]
        )

    def repeats(self) -> dict[tuple[str, TaskRef, int], Outcome]:
        """Return what the last try of an attempt came to, where it was run again after the verdict that counts."""
        counting = {_place(cell.row): cell for cell in self.cells if cell.row is not None and cell.measured}
        found: dict[tuple[str, TaskRef, int], TrialRow] = {}
        for row in self.superseded:
            cell = counting.get(_place(row))
            if cell is None or not _has_verdict(row):
                continue
            key = (cell.profile, cell.task, cell.attempt)
            if key not in found or _start(row) > _start(found[key]):
                found[key] = row
        return {key: row.trial.outcome for key, row in found.items() if row.trial is not None}

    def rows(self) -> list[TrialRow]:
        """Every trial folder of the batch."""
        return [cell.row for cell in self.cells if cell.row is not None] + self.superseded


def view_batch(batch: Batch, results_root: Path | None = None, plan: Plan | None = None) -> BatchView:
    """The state of a batch, from its plan (or one that is not written yet) and the index. Call `scan_batch` first."""
    root = results_root or batch.results_root
    try:
        plan = plan or read_json(batch.plan_json, Plan)
    except FileNotFoundError:
        raise UserError("has no plan.json, so it is not a batch of tbench", where=str(batch.folder)) from None
    key = batch.folder.relative_to(root).as_posix()
    with open_index(root) as connection:
        rows = batch_rows(connection, key)
    cells, superseded = assign_cells(plan, rows)
    return BatchView(key, plan, cells, superseded, notes=plan.imported.notes_now() if plan.imported else ())


def trial_rows(results_root: Path, batch: str) -> list[TrialRow]:
    """Every trial the index has of a batch, in the order they started."""
    with open_index(results_root) as connection:
        return batch_rows(connection, batch)


def held_trials(results_root: Path, batch: str) -> list[str]:
    """The trials of a batch that were not let in, each as `<job>/<trial>`."""
    query = "SELECT job || '/' || trial FROM trials WHERE batch = ? AND state = ? ORDER BY job, trial"
    with open_index(results_root) as connection:
        return [key for (key,) in connection.execute(query, (batch, ReadState.HELD))]


def assign_cells(plan: Plan, rows: Iterable[TrialRow]) -> tuple[list[CellState], list[TrialRow]]:
    """Give each planned cell the trial that counts for it; what is over was superseded.

    Rows come in the order they started; `first_verdicts` and `counting_order` say which count. A try with a verdict
    counts though it was run again, or set aside before another try.
    """
    by_cell: dict[tuple[str | None, str | None, str | None], list[TrialRow]] = defaultdict(list)
    aside: list[TrialRow] = []
    run_again = set(plan.superseded)
    for row in rows:
        over = (row.superseded or row.key in run_again) and not _has_verdict(row)
        (aside if over else by_cell[row.profile, row.dataset, row.task]).append(row)
    cells: list[CellState] = []
    excluded = plan.exclusions()
    for job in plan.jobs:
        for task in job.tasks:
            rows_of_cell = by_cell.pop((job.profile, task.label, task.ref.id), [])
            first = first_verdicts(rows_of_cell, _told, _standing, _has_start)
            aside += first.again
            found = counting_order(first.may_count, _standing, _has_start)
            planned = job.attempts_of(task)
            by_attempt = numbered(found[:planned], _told, planned)
            for attempt in range(1, planned + 1):
                row = by_attempt.get(attempt)
                never_ran = row is None or row.state == ReadState.HELD
                reason = excluded(job.profile, task.ref) if never_ran else None
                cells.append(_cell(job.profile, task.ref, attempt, row, reason))
            if found[planned:]:
                by_cell["", "", f"{job.profile}/{task.label}/{task.ref.id}"] = found[planned:]
    over = [*aside, *(row for found in by_cell.values() for row in found)]
    return cells, [row for row in over if row.state != ReadState.HELD]


def standing(outcome: str | None) -> int:
    """Rank the trials of a cell, the lowest first: measured ones, other endings, cancelled and unfinished ones."""
    if outcome is None or outcome == Outcome.CANCELLED:
        return 2
    return 0 if outcome in (Outcome.PASSED, Outcome.FAILED) else 1


class FirstVerdicts[T](NamedTuple):
    """The trials of one cell that may count, and those that were run after their attempt had its verdict."""

    may_count: list[T]
    again: list[T]


def first_verdicts[T](
    trials: Sequence[T], attempt: Callable[[T], int | None], place: Callable[[T], int], has_start: Callable[[T], bool]
) -> FirstVerdicts[T]:
    """Return of the tries of one attempt the first with a verdict: one who tries until it passes, passes more often.

    Arguments as for `counting_order`. Trials whose attempt is not known are all taken for attempts of their own.
    """
    if len(trials) < 2:
        return FirstVerdicts(list(trials), [])
    firsts: dict[int, T] = {}
    again: list[T] = []
    for trial in sorted(trials, key=lambda one: not has_start(one)):
        number = attempt(trial) if place(trial) == 0 else None
        if number is not None and firsts.setdefault(number, trial) is not trial:
            again.append(trial)
    return FirstVerdicts([one for one in trials if not any(one is repeat for repeat in again)], again)


def counting_order[T](trials: Sequence[T], place: Callable[[T], int], has_start: Callable[[T], bool]) -> list[T]:
    """The trials of one cell, those that count first: decided here, for the index and for the live state.

    `trials` come in the order they started, `place` is what `standing` says of each. Measured ones count in the order
    they started, an unknown start last; of the others the newest counts first.
    """
    if len(trials) < 2:
        return list(trials)
    by_place: dict[int, list[T]] = defaultdict(list)
    for trial in trials:
        by_place[place(trial)].append(trial)
    measured = sorted(by_place.pop(0, []), key=lambda trial: not has_start(trial))
    return [*measured, *(trial for rest in sorted(by_place) for trial in reversed(by_place[rest]))]


def _standing(row: TrialRow) -> int:
    return 3 if row.state == ReadState.HELD else standing(row.trial.outcome if row.trial is not None else None)


def _has_verdict(row: TrialRow) -> bool:
    return row.trial is not None and row.trial.measured


def _told(row: TrialRow) -> int | None:
    """Return which attempt its agent was told to be; unknown in older batches."""
    return row.trial.attempt if row.trial is not None else None


def _start(row: TrialRow) -> str:
    return (row.trial.started_at if row.trial is not None else None) or ""


def _place(row: TrialRow) -> tuple[object, ...]:
    """The attempt that a trial was told to be; itself where it was told none."""
    number = _told(row)
    return (row.profile, row.dataset, row.task, number) if number is not None else (row.job, row.name)


def _has_start(row: TrialRow) -> bool:
    return row.trial is not None and bool(row.trial.started_at)


def _cell(profile: str, task: TaskRef, attempt: int, row: TrialRow | None, excluded: Exclusion | None) -> CellState:
    if row is not None and row.trial is not None:
        return CellState(profile, task, attempt, row.trial.outcome, row, row.trial.error_message)
    if row is not None:
        outcomes = {ReadState.UNREADABLE: Outcome.ERRORED, ReadState.HELD: Outcome.NOT_RUN}
        outcome = outcomes.get(ReadState(row.state), Outcome.CANCELLED)
        # What was spent when the trial was held is not all that was spent in the end.
        told = excluded.reason if excluded is not None and excluded.kind is ExclusionKind.BUDGET else row.why
        spared = outcome is Outcome.NOT_RUN and excluded is not None and excluded.kind is ExclusionKind.DECIDED
        return CellState(profile, task, attempt, outcome, row, told, spared=spared)
    if excluded is not None:
        outcome = Outcome.ERRORED if excluded.kind is ExclusionKind.ABORTED else Outcome.NOT_RUN
        spared = excluded.kind is ExclusionKind.DECIDED
        return CellState(profile, task, attempt, outcome, None, excluded.reason, spared=spared)
    return CellState(profile, task, attempt, Outcome.NOT_RUN)


def trials_named(results_root: Path, name: str) -> list[tuple[str, TrialRow]]:
    """The trials whose name starts with `name`, with the batch they are in."""
    escaped = name.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    query = (
        r"SELECT * FROM trials WHERE trial = ? OR trial LIKE ? ESCAPE '\' ORDER BY trial != ?, batch, trial LIMIT 20"
    )
    with open_index(results_root) as connection:
        rows = connection.execute(query, (name, f"{escaped}%", name)).fetchall()
    return [(row["batch"], trial_row(row)) for row in rows]


def row_outcome(row: TrialRow) -> Outcome:
    """Return how a trial folder stands on its own, without a plan."""
    if row.trial is not None:
        return row.trial.outcome
    return Outcome.ERRORED if row.state == ReadState.UNREADABLE else Outcome.CANCELLED


_USAGE = (
    "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "cost_usd", "usage_source",
    "cost_source", "all_tokens",
)  # fmt: skip
_COLUMNS = (
    "job", "trial", "state", "reason", "profile", "task", "dataset", "superseded", "counts", "attempt", "treatment",
    "copy", "batch", "record", *_USAGE,
)  # fmt: skip
_decode = decoder(Trial).decode


def batch_rows(connection: sqlite3.Connection, batch: str) -> list[TrialRow]:
    """Every trial folder of a batch, in the order they started."""
    query = f"SELECT {', '.join(_COLUMNS)} FROM trials WHERE batch = ? ORDER BY started_at, trial, job"  # noqa: S608
    return [_row(*row) for row in connection.execute(query, (batch,))]


def trial_row(row: sqlite3.Row) -> TrialRow:
    """A row of the table `trials`."""
    return _row(*(row[name] for name in _COLUMNS))


def _row(job: str, name: str, state: str, reason: str, profile: str, task: str, dataset: str, *more: Any) -> TrialRow:
    superseded, counts, attempt, treatment, copy, batch, record, *usage = more
    trial = _decode(record) if record is not None else None
    counted = None if counts is None else bool(counts)
    used = Usage(*usage)
    known = TrialRow(job, name, state, reason, profile, task, dataset, trial, used, bool(superseded), counted, attempt)
    if batch != ".":
        return known
    return msgspec.structs.replace(known, treatment=treatment, copy=bool(copy), foreign=True)


_OF_TRIAL = (
    "reward", "error_type", "error_message", "agent", "agent_version", "model", "started_at", "finished_at",
    "task_digest", "tool_calls", "agent_steps", "simulated",
)  # fmt: skip
_of_trial = attrgetter(*_OF_TRIAL)


def trial_columns(row: TrialRow | TrialReading) -> dict[str, Any]:
    """The columns of one trial, named alike in the index, in exports and on pages; fewer while it has no result."""
    trial = row.trial
    found = {"job": row.job, "trial": row.name, "state": row.state, "reason": row.reason}
    found |= zip(_USAGE, astuple(row.usage), strict=True)
    found |= {"task": row.task, "dataset": row.dataset}
    if trial is None:
        return found
    found |= zip(_OF_TRIAL, _of_trial(trial), strict=True)
    found |= asdict(trial.phases)
    had = trial.delivery
    egress = trial.egress if trial.egress is not None and trial.egress.seen else None
    return found | {
        "cli_version": had.cli_version,
        "session_model": had.model,
        "permission_mode": had.permission_mode,
        "tools": _json(had.tools),
        "mcp_state": _json(had.mcp_state),
        "connections": egress.connections if egress is not None else None,
        "refused": egress.refused if egress is not None else None,
        "hosts": _json([one.host for one in egress.hosts if one.connections]) if egress is not None else None,
        "outcome": trial.outcome.value,
        "agent_status": trial.agent_status.value,
        "error_class": trial.error_class.value if trial.error_class is not None else None,
        "suspect": "; ".join(trial.suspect) or None,
    }


def _json(value: list[str] | dict[str, str] | None) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
