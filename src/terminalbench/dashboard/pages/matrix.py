"""The task by profile matrix and the profile table of a batch. Pure: from its view to what the page shows."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from terminalbench.index.queries import BatchView, CellState, TrialRow
from terminalbench.index.totals import cell_rates, spend
from terminalbench.records import Outcome, TaskRef


@dataclass(frozen=True)
class MatrixCell:
    """One profile at one task: its attempts, in order."""

    attempts: Sequence[CellState]
    passed: int
    measured: int

    @property
    def rate(self) -> float | None:
        """Of the measured attempts."""
        return self.passed / self.measured if self.measured else None


@dataclass(frozen=True)
class MatrixRow:
    """One task under every profile. `pair` are two trials worth seeing side by side, if there are any."""

    task: TaskRef
    cells: dict[str, MatrixCell]
    differs: bool
    unmeasured: bool
    pair: tuple[TrialRow, TrialRow] | None


def matrix(view: BatchView) -> list[MatrixRow]:
    """One row a task, in the order of the plan."""
    found: dict[TaskRef, dict[str, list[CellState]]] = {}
    for cell in view.cells:
        found.setdefault(cell.task, defaultdict(list))[cell.profile].append(cell)
    return [_row(task, by_profile) for task, by_profile in found.items()]


def _row(task: TaskRef, by_profile: dict[str, list[CellState]]) -> MatrixRow:
    cells = {}
    for profile, attempts in by_profile.items():
        counts = Counter(cell.outcome for cell in attempts)
        passed = counts[Outcome.PASSED]
        cells[profile] = MatrixCell(attempts, passed, passed + counts[Outcome.FAILED])
    rates = {cell.rate for cell in cells.values()} - {None}
    unmeasured = any(cell.measured < len(cell.attempts) for cell in cells.values())
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


@dataclass(frozen=True)
class ProfileLine:
    """One profile of a batch in numbers. None is unknown; `no_model` means it calls no model and costs nothing.

    `rate` and `rate_all` are means over tasks, as everywhere. `mean_wall_sec` is of trials from start to end.
    """

    profile: str
    description: str | None
    planned: int
    outcomes: dict[str, int]
    rate: float | None
    rate_all: float | None
    superseded: int
    cost_usd: float | None
    cost_unknown: int
    tokens: int | None
    tokens_unknown: int
    mean_wall_sec: float | None
    no_model: bool
    simulated: bool

    @property
    def passed(self) -> int:
        """Trials the verifier passed."""
        return self.outcomes.get(Outcome.PASSED, 0)

    @property
    def failed(self) -> int:
        """Trials the verifier failed."""
        return self.outcomes.get(Outcome.FAILED, 0)

    @property
    def measured(self) -> int:
        """Trials with a verdict."""
        return self.passed + self.failed

    @property
    def cost_per_pass(self) -> float | None:
        """Known cost over passed trials; None while a cost is unknown."""
        if self.cost_usd is None or self.cost_unknown or not self.passed:
            return None
        return self.cost_usd / self.passed


def profile_lines(view: BatchView) -> list[ProfileLine]:
    """The profile table, in the order of the plan."""
    cells: dict[str, list[CellState]] = defaultdict(list)
    for cell in view.cells:
        cells[cell.profile].append(cell)
    aside: dict[str | None, list[TrialRow]] = defaultdict(list)
    for row in view.superseded:
        aside[row.profile].append(row)
    names = list(dict.fromkeys(job.profile for job in view.plan.jobs))
    return [_line(view, name, cells[name], aside[name]) for name in names]


def _line(view: BatchView, name: str, cells: list[CellState], aside: list[TrialRow]) -> ProfileLine:
    record = next((p for p in view.plan.profiles if p.key == name), None)
    free = view.plan.without_model()
    rows = [cell.row for cell in cells if cell.row] + aside
    spent, rates = spend(rows, free), cell_rates(cells)
    trials = [cell.row.trial for cell in cells if cell.row and cell.row.trial]
    times = [t for trial in trials if (t := trial.wall_sec) is not None]
    return ProfileLine(
        profile=name,
        description=record.description if record else None,
        planned=len(cells),
        outcomes=dict(Counter(cell.outcome.value for cell in cells)),
        rate=rates.rate,
        rate_all=rates.rate_all,
        superseded=len(aside),
        cost_usd=spent.cost_usd,
        cost_unknown=spent.cost_unknown,
        tokens=spent.tokens,
        tokens_unknown=spent.tokens_unknown,
        mean_wall_sec=sum(times) / len(times) if times else None,
        no_model=name in free,
        simulated=any(row.trial is not None and row.trial.simulated for row in rows),
    )


@dataclass(frozen=True)
class Reason:
    """Why trials of a profile were not measured, and one of them."""

    outcome: str
    error_class: str | None
    text: str
    profile: str
    count: int
    example: TrialRow | None


def not_measured(view: BatchView, limit: int = 40) -> list[Reason]:
    """Why trials were not measured, the most frequent reasons first."""
    counts: Counter[tuple[str, str | None, str, str]] = Counter()
    examples: dict[tuple[str, str | None, str, str], TrialRow] = {}
    for cell in view.cells:
        if cell.measured:
            continue
        trial = cell.row.trial if cell.row else None
        default = "it never started" if cell.row is None else "it was interrupted"
        error = trial.error_class.value if trial and trial.error_class else None
        key = (cell.outcome.value, error, cell.reason or default, cell.profile)
        counts[key] += 1
        if cell.row is not None:
            examples.setdefault(key, cell.row)
    return [Reason(*key, count, examples.get(key)) for key, count in counts.most_common(limit)]
