"""What a night spends on its three parts. Pure."""

from dataclasses import dataclass

from terminalbench.trainer.tables import BudgetTable


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
