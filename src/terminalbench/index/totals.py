"""What a table says of many trials together: the pass rate and the spend. Counted here and nowhere else. Pure."""

from collections import defaultdict
from collections.abc import Container, Iterable
from math import fsum
from typing import NamedTuple

import msgspec

from terminalbench.harbor.read.results import ReadState
from terminalbench.index.queries import CellState, TrialRow
from terminalbench.records import Outcome


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
