"""What a night spends on its parts. Pure."""

from dataclasses import dataclass

from terminalbench.trainer.evolvers.tables import EvolverTable
from terminalbench.trainer.tables import BudgetTable

EVOLVER_SHARE = 0.1
"""What a coding agent that edits profiles may have of a night's money, where the plan does not say."""


@dataclass(frozen=True)
class NightParts:
    """Trials of each part, of all profiles together."""

    control: int
    explore: int
    confirm: int


def night_parts(budget: BudgetTable, *, challenger: bool, exploring: bool) -> NightParts:
    """How the trials of a night are divided. Without a challenger its share is explored with; what is not needed stays.

    A challenger gets its own share and no more: its looks have to be equally large.
    """
    confirm = int(budget.trials * budget.confirm)
    explore = int(budget.trials * budget.explore)
    return NightParts(
        int(budget.trials * budget.control),
        (explore if challenger else explore + confirm) if exploring else 0,
        confirm if challenger else 0,
    )


def agent_usd(budget: BudgetTable, evolver: EvolverTable) -> float | None:
    """What an edit by a coding agent may cost in a night; None without a limit, or where no agent edits."""
    if evolver.profile is None or evolver.usd is not None:
        return evolver.usd if evolver.profile is not None else None
    return budget.usd * EVOLVER_SHARE if budget.usd is not None else None


def search_usd(budget: BudgetTable, evolver: EvolverTable, *, challenger: bool) -> float | None:
    """What the trials of a search may cost: its share, without what is kept for an agent that edits."""
    if budget.usd is None:
        return None
    share = budget.explore if challenger else budget.explore + budget.confirm
    return budget.usd * share - (agent_usd(budget, evolver) or 0.0)
