"""The task by profile matrix and the profile table of a batch. Pure: from its view to what the page shows."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from terminalbench.experiments.agents import agent_info
from terminalbench.harbor.results import ReadState
from terminalbench.index.export import elapsed_sec
from terminalbench.index.queries import BatchView, CellState, TrialRow
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
    """One profile of a batch in numbers. None is unknown; `no_model` means it calls no model and costs nothing."""

    profile: str
    description: str | None
    planned: int
    outcomes: dict[str, int]
    superseded: int
    cost_usd: float | None
    cost_unknown: int
    tokens: int | None
    mean_sec: float | None
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
    def rate(self) -> float | None:
        """Of the measured trials."""
        return self.passed / self.measured if self.measured else None

    @property
    def rate_all(self) -> float | None:
        """Of all planned trials."""
        return self.passed / self.planned if self.planned else None

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
    info = agent_info(record.content["agent"]) if record and "agent" in record.content else None
    rows = [cell.row for cell in cells if cell.row] + aside
    costs = [row.usage.cost_usd for row in rows if row.state != ReadState.HELD]
    known = [cost for cost in costs if cost is not None]
    tokens = [total for row in rows if (total := total_tokens(row)) is not None]
    trials = [cell.row.trial for cell in cells if cell.row and cell.row.trial]
    times = [t for trial in trials if (t := elapsed_sec(trial.started_at, trial.finished_at)) is not None]
    return ProfileLine(
        profile=name,
        description=record.description if record else None,
        planned=len(cells),
        outcomes=dict(Counter(cell.outcome.value for cell in cells)),
        superseded=len(aside),
        cost_usd=sum(known) if known else None,
        cost_unknown=len(costs) - len(known),
        tokens=sum(tokens) if tokens else None,
        mean_sec=sum(times) / len(times) if times else None,
        no_model=info is not None and not info.model,
        simulated=any(row.trial is not None and row.trial.simulated for row in rows),
    )


def total_tokens(row: TrialRow) -> int | None:
    """All tokens of a trial, None when none is known."""
    usage = row.usage
    counts = (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens, usage.output_tokens)
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


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
