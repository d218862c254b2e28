"""What a list of batches shows of each: counted once, when a scan finds a change, and kept in the index."""

import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec

from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import Plan
from terminalbench.index.queries import CellState, TrialRow, assign_cells, batch_rows, plan_or_none, row_outcome
from terminalbench.index.store import transaction
from terminalbench.index.totals import cell_rates, spend
from terminalbench.records import Outcome, TaskRef


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


def summarize(connection: sqlite3.Connection, results_root: Path, key: str) -> None:
    """Count the batch `key` anew; keep the counts, and of each trial whether it counts and as which attempt.

    Nobody writes between the look and the counts: else older counts could take the place of newer ones.
    """
    with transaction(connection):
        _summarize(connection, results_root, key)


def _summarize(connection: sqlite3.Connection, results_root: Path, key: str) -> None:
    rows = batch_rows(connection, key)
    plan = plan_or_none(Batch(results_root / key))
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
    connection.execute(f"INSERT OR REPLACE INTO summaries VALUES ({', '.join('?' * len(values))})", values)  # noqa: S608
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
