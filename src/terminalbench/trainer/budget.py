"""What a night spends on its parts. Pure."""

from dataclasses import dataclass

from terminalbench.trainer.evolvers.tables import EvolverTable
from terminalbench.trainer.tables import BudgetTable

EVOLVER_SHARE = 0.1
"""What a coding agent that edits profiles may have of a night's money, where the plan does not say."""
ITSELF_SHARE = 0.4
"""How much of the control's share a champion has that is measured against itself: nothing is decided by that."""


@dataclass(frozen=True)
class NightParts:
    """Trials of each part, of all profiles together."""

    control: int
    explore: int
    confirm: int


def control_share(budget: BudgetTable, *, watching: bool) -> float:
    """The share of the control: all of it for a champion against the one before it, less for one against itself."""
    return budget.control * (1.0 if watching else ITSELF_SHARE)


def night_parts(budget: BudgetTable, *, challenger: bool, exploring: bool, watching: bool) -> NightParts:
    """How the trials of a night are divided: what is not the control's has the search, or the challenger.

    So a challenger is decided in few nights, its looks are equally large, and nothing is searched for that would wait.
    """
    control = control_share(budget, watching=watching)
    rest = int(budget.trials * (1 - control) + 1e-9)
    return NightParts(
        int(budget.trials * control + 1e-9), rest if exploring and not challenger else 0, rest if challenger else 0
    )


def agent_usd(budget: BudgetTable, evolver: EvolverTable) -> float | None:
    """What an edit by a coding agent may cost in a night; None without a limit, or where no agent edits."""
    if evolver.profile is None or evolver.usd is not None:
        return evolver.usd if evolver.profile is not None else None
    return budget.usd * EVOLVER_SHARE if budget.usd is not None else None


def search_usd(budget: BudgetTable, evolver: EvolverTable, *, watching: bool) -> float | None:
    """What the trials of a search may cost: its share, without what is kept for an agent that edits."""
    if budget.usd is None:
        return None
    return budget.usd * (1 - control_share(budget, watching=watching)) - (agent_usd(budget, evolver) or 0.0)
