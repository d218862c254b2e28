"""Which planned trials of a live batch run now: a state of its own, beside how the others ended. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from terminalbench.dashboard.live import ShownTrial
from terminalbench.index.queries import CellState
from terminalbench.index.totals import ProfileTotals
from terminalbench.records.trial import Outcome, TaskRef
from terminalbench.text.outcomes import RUNNING

type Place = tuple[str, TaskRef, int]
"""A profile, a task and an attempt."""


def place(cell: CellState) -> Place:
    """Which planned trial a cell stands for."""
    return (cell.profile, cell.task, cell.attempt)


def running_cells(cells: Iterable[CellState], running: Sequence[ShownTrial]) -> dict[Place, ShownTrial]:
    """The running trial of each cell that has one.

    By its folder; one that the index does not know yet stands for the first cell of its profile and task that has not
    run.
    """
    known = {f"{trial.job}/{trial.trial}": trial for trial in running}
    free: dict[tuple[str, str], list[Place]] = defaultdict(list)
    found: dict[Place, ShownTrial] = {}
    for cell in cells if known else ():
        if cell.row is not None and cell.row.key in known:
            found[place(cell)] = known.pop(cell.row.key)
        elif cell.outcome is Outcome.NOT_RUN:
            free[cell.profile, cell.task.id].append(place(cell))
    for trial in known.values():
        places = free[trial.profile, trial.task]
        if places:
            found[places.pop(0)] = trial
    return found


def waits(cell: CellState) -> bool:
    """Whether a cell of a live batch has simply not had its turn yet."""
    return cell.row is None and cell.outcome is Outcome.NOT_RUN and cell.reason is None


def outcome_bars(
    profiles: Iterable[ProfileTotals], cells: Iterable[CellState], running: Mapping[Place, ShownTrial]
) -> dict[str, dict[str, int]]:
    """How many trials of each profile ended how, or run."""
    bars = {totals.profile: Counter(totals.outcomes) for totals in profiles}
    for cell in cells if running else ():
        if place(cell) in running:
            bars[cell.profile][cell.outcome.value] -= 1
            bars[cell.profile][RUNNING] += 1
    return {profile: dict(counts) for profile, counts in bars.items()}
