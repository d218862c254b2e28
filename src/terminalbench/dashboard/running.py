"""Which planned trials of a live batch run now: a state of its own, beside how the others ended. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from terminalbench.dashboard.live import ShownTrial
from terminalbench.index.queries import CellState
from terminalbench.index.totals import ProfileTotals
from terminalbench.live.status import Running, running_places
from terminalbench.records.trial import Outcome, TaskRef
from terminalbench.text.outcomes import RUNNING

type Place = tuple[str, TaskRef, int]
"""A profile, a task and an attempt."""


def place(cell: CellState) -> Place:
    """Return which planned trial a cell stands for."""
    return (cell.profile, cell.task, cell.attempt)


def running_cells(cells: Sequence[CellState], running: Sequence[ShownTrial]) -> dict[Place, ShownTrial]:
    """The running trial of each cell that has one."""
    known = {f"{trial.job}/{trial.trial}": trial for trial in running}
    return {place(cells[at]): known[key] for at, key in running_places(cells, named(running)).items()}


def named(running: Iterable[ShownTrial]) -> Running:
    """Running trials by their folder."""
    return {f"{trial.job}/{trial.trial}": (trial.profile, trial.task) for trial in running}


def waits(cell: CellState) -> bool:
    """Return whether a cell of a live batch has simply not had its turn yet."""
    return cell.row is None and cell.outcome is Outcome.NOT_RUN and cell.reason is None


def outcome_bars(
    profiles: Iterable[ProfileTotals], cells: Iterable[CellState], running: Mapping[Place, ShownTrial]
) -> dict[str, dict[str, int]]:
    """Return how many trials of each profile ended how, or run."""
    bars = {totals.profile: Counter(totals.outcomes) for totals in profiles}
    for cell in cells if running else ():
        if place(cell) in running:
            bars[cell.profile][cell.outcome.value] -= 1
            bars[cell.profile][RUNNING] += 1
    return {profile: dict(counts) for profile, counts in bars.items()}
