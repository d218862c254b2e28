"""What a table says of many trials together: the pass rate and the spend, and of a batch the counts its list shows.

Counted here and nowhere else; the counts of a batch are made when a scan finds a change, and kept in the index.
"""

import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator
from math import fsum
from typing import NamedTuple

import msgspec

from terminalbench.experiments.plan import Plan
from terminalbench.harbor.read.results import ReadState
from terminalbench.index.queries import CellState, TrialRow, assign_cells, batch_rows, row_outcome
from terminalbench.records import Outcome, TaskRef


class TaskCounts(NamedTuple):
    """One profile on one task: how many of its trials passed, were measured, were planned."""

    passed: int
    measured: int
    planned: int


class Rates(msgspec.Struct, frozen=True):
    """The pass rate of a profile: the mean over tasks, so that a task with more attempts does not weigh more.

    `rate` is of the measured trials, over the tasks that have one; None when there is none. `rate_all` is of all
    planned trials: what was not measured counts as not passed.
    """

    rate: float | None = None
    rate_all: float | None = None


def pass_rates(tasks: Iterable[TaskCounts]) -> Rates:
    """The pass rate over these tasks."""
    counted = list(tasks)
    return Rates(
        _mean([task.passed / task.measured for task in counted if task.measured]),
        _mean([task.passed / task.planned for task in counted if task.planned]),
    )


def cell_rates(cells: Iterable[CellState]) -> Rates:
    """The pass rate over the cells of one profile."""
    tasks: dict[tuple[str, str], list[CellState]] = defaultdict(list)
    for cell in cells:
        tasks[cell.task.dataset, cell.task.id].append(cell)
    return pass_rates(
        TaskCounts(sum(c.outcome is Outcome.PASSED for c in found), sum(c.measured for c in found), len(found))
        for found in tasks.values()
    )


def _mean(values: list[float]) -> float | None:
    return fsum(values) / len(values) if values else None


class Spend(msgspec.Struct, frozen=True):
    """Sums over what is known (None: nothing is), and how many trials did not say. Unknown is not zero."""

    cost_usd: float | None = None
    cost_unknown: int = 0
    tokens: int | None = None
    tokens_unknown: int = 0


def spend(rows: Iterable[TrialRow], free: Container[str | None] = ()) -> Spend:
    """What trials cost together. One that never started costs nothing, nor does one of a `free` profile."""
    ran = [row for row in rows if row.state != ReadState.HELD]
    costs = [0.0 if row.profile in free else row.usage.cost_usd for row in ran]
    tokens = [0 if row.profile in free else row.usage.total_tokens for row in ran]
    known = [cost for cost in costs if cost is not None]
    counted = [count for count in tokens if count is not None]
    return Spend(
        cost_usd=fsum(known) if known else None,
        cost_unknown=len(costs) - len(known),
        tokens=sum(counted) if counted else None,
        tokens_unknown=len(tokens) - len(counted),
    )


class ProfileCounts(msgspec.Struct, frozen=True, omit_defaults=True):
    """One profile of a batch: planned trials, how they ended, what they cost (superseded ones included).

    `rate` is its pass rate, the mean over tasks; None when nothing was measured.
    """

    profile: str
    planned: int
    outcomes: dict[str, int]
    profile_id: str | None = None
    cost_usd: float | None = None
    cost_unknown: int = 0
    rate: float | None = None

    @property
    def passed(self) -> int:
        """Trials the verifier passed."""
        return self.outcomes.get(Outcome.PASSED, 0)

    @property
    def measured(self) -> int:
        """Trials with a verdict."""
        return self.passed + self.outcomes.get(Outcome.FAILED, 0)


_INSERT = (
    "INSERT OR REPLACE INTO summaries (batch, version, trials, passed, failed, not_measured, cost_usd, cost_unknown, "
    "simulated, last_at, profiles) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def summarize(connection: sqlite3.Connection, key: str, plan: Plan | None) -> None:
    """Count the batch `key` anew; keep the counts, and of each trial whether it counts and as which attempt.

    Inside a transaction of the caller.
    """
    rows = batch_rows(connection, key)
    cells = assign_cells(plan, rows)[0] if plan is not None else _unplanned(rows)
    profiles = _profiles(plan, cells, rows)
    total = Counter(cell.outcome for cell in cells)
    measured = total[Outcome.PASSED] + total[Outcome.FAILED]
    spent = spend(rows, plan.without_model() if plan else ())
    values = (
        key,
        time.time_ns(),
        total.total() - total[Outcome.NOT_RUN],
        total[Outcome.PASSED],
        total[Outcome.FAILED],
        total.total() - measured,
        spent.cost_usd,
        spent.cost_unknown,
        int(any(row.trial is not None and row.trial.simulated for row in rows)),
        max((row.trial.finished_at for row in rows if row.trial and row.trial.finished_at), default=None),
        msgspec.json.encode(profiles).decode(),
    )
    changed = _standing(rows, cells, planned=plan is not None)
    connection.execute(_INSERT, values)
    connection.executemany(
        "UPDATE trials SET counts = ?, attempt = ? WHERE batch = ? AND job = ? AND trial = ?",
        ((counts, attempt, key, row.job, row.name) for row, counts, attempt in changed),
    )


def _unplanned(rows: list[TrialRow]) -> list[CellState]:
    """Trials that nobody planned: each stands for itself."""
    return [
        CellState(row.profile or "?", TaskRef(row.task or "?", row.dataset or "?"), 1, row_outcome(row), row)
        for row in rows
        if not row.superseded
    ]


def _profiles(plan: Plan | None, cells: list[CellState], rows: list[TrialRow]) -> list[ProfileCounts]:
    ids = {job.profile: job.profile_id for job in plan.jobs} if plan else {}
    free = plan.without_model() if plan else frozenset()
    by_profile: dict[str, list[CellState]] = defaultdict(list)
    for cell in cells:
        by_profile[cell.profile].append(cell)
    tries: dict[str, list[TrialRow]] = defaultdict(list)
    for row in rows:
        tries[row.profile or "?"].append(row)
    made = []
    for name, found in by_profile.items():
        spent = spend(tries[name], free)
        made.append(
            ProfileCounts(
                profile=name,
                planned=len(found),
                outcomes=dict(Counter(cell.outcome.value for cell in found)),
                profile_id=ids.get(name),
                cost_usd=spent.cost_usd,
                cost_unknown=spent.cost_unknown,
                rate=cell_rates(found).rate,
            )
        )
    return made


def _standing(
    rows: list[TrialRow], cells: list[CellState], *, planned: bool
) -> Iterator[tuple[TrialRow, int, int | None]]:
    """The trials of which the index does not yet say rightly whether they count, and as which attempt."""
    attempts = {(cell.row.job, cell.row.name): cell.attempt for cell in cells if cell.row is not None}
    for row in rows:
        counts = (row.job, row.name) in attempts
        attempt = attempts[row.job, row.name] if counts and planned else None
        if (row.counts, row.attempt) != (counts, attempt):
            yield row, int(counts), attempt
