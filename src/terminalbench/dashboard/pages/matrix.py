"""The tasks of a batch by profile: every attempt, which tasks are asked for, and in which order. Pure."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from terminalbench.index.pages import SortOrder
from terminalbench.index.queries import BatchView, CellState, TrialRow
from terminalbench.records.counts import Counts
from terminalbench.records.trial import Outcome, TaskRef

SHOWS = {"": "all tasks", "differ": "where profiles differ", "unmeasured": "not all measured"}
ORDERS = {"": "as planned", "task": "by name", "worst": "fewest passes first", "apart": "most different first"}


@dataclass(frozen=True)
class MatrixCell:
    """One profile at one task: its attempts, in order."""

    attempts: Sequence[CellState]
    counts: Counts


@dataclass(frozen=True)
class MatrixRow:
    """One task under every profile. `pair` are two trials worth seeing side by side, if there are any."""

    task: TaskRef
    cells: dict[str, MatrixCell]
    differs: bool
    unmeasured: bool
    pair: tuple[TrialRow, TrialRow] | None

    @property
    def rates(self) -> list[float]:
        """Return the pass rates of the profiles with a measured attempt."""
        return [cell.counts.rate for cell in self.cells.values() if cell.counts.rate is not None]


_VALUES: Mapping[str, Callable[[MatrixRow], Any]] = {
    "task": lambda row: (row.task.id, row.task.dataset),
    "worst": lambda row: sum(row.rates) / len(row.rates) if row.rates else None,
    "apart": lambda row: min(row.rates) - max(row.rates) if row.rates else None,
}


@dataclass(frozen=True)
class MatrixFilter:
    """Which rows: `text` is in the name of the task, `show` and `order` are keys of SHOWS and ORDERS."""

    text: str = ""
    show: str = ""
    order: str = ""

    def of(self, rows: Sequence[MatrixRow]) -> list[MatrixRow]:
        """Those rows, in that order; equal ones as planned."""
        return SortOrder(self.order).of((row for row in rows if self._fits(row)), _VALUES)

    def _fits(self, row: MatrixRow) -> bool:
        if self.text and self.text.lower() not in f"{row.task.dataset}/{row.task.id}".lower():
            return False
        return {"differ": row.differs, "unmeasured": row.unmeasured}.get(self.show, True)


def matrix(view: BatchView) -> list[MatrixRow]:
    """One row a task, in the order of the plan."""
    found: dict[TaskRef, dict[str, list[CellState]]] = {}
    for cell in view.cells:
        found.setdefault(cell.task, defaultdict(list))[cell.profile].append(cell)
    return [_matrix_row(task, by_profile) for task, by_profile in found.items()]


def _matrix_row(task: TaskRef, by_profile: dict[str, list[CellState]]) -> MatrixRow:
    cells = {}
    for profile, attempts in by_profile.items():
        passed = sum(cell.outcome is Outcome.PASSED for cell in attempts)
        cells[profile] = MatrixCell(attempts, Counts(passed, sum(cell.measured for cell in attempts)))
    rates = {cell.counts.rate for cell in cells.values()} - {None}
    unmeasured = any(cell.counts.measured < len(cell.attempts) for cell in cells.values())
    return MatrixRow(task, cells, len(rates) > 1, unmeasured, _pair(by_profile))


def _pair(by_profile: dict[str, list[CellState]]) -> tuple[TrialRow, TrialRow] | None:
    """A failed and a passed trial, of two profiles if possible; else the first trials of two profiles."""
    ran = [
        cell for cells in by_profile.values() for cell in cells if cell.row is not None and cell.row.trial is not None
    ]
    failed = [cell for cell in ran if cell.outcome is not Outcome.PASSED]
    passed = [cell for cell in ran if cell.outcome is Outcome.PASSED]
    across = [(f, p) for f in failed[:20] for p in passed[:20] if f.profile != p.profile]
    within = [(f, p) for f in failed[:1] for p in passed[:1]]
    others = [(ran[0], cell) for cell in ran[1:] if cell.profile != ran[0].profile] if ran else []
    for one, other in (*across[:1], *within, *others[:1]):
        if one.row is not None and other.row is not None:
            return one.row, other.row
    return None
