"""Checking a training plan without running it."""

from pathlib import Path
from tempfile import TemporaryDirectory

from terminalbench.analytics.power import fewest_units
from terminalbench.analytics.stats import nominal_level
from terminalbench.text.numbers import p_equation, p_value
from terminalbench.trainer.evolvers.search import evolver_of
from terminalbench.trainer.plan import TrainingPlan, check_declared, dev_units, load_plan


def check_plan(file: Path, root: Path | None = None) -> TrainingPlan:
    """The plan, as a run would take it. Raises UserError for all that a run refuses before its first trial.

    Nothing is written to the project: no split, no text, no declaration.
    """
    with TemporaryDirectory() as scratch:
        plan = load_plan(file, root, Path(scratch))
        evolver_of(plan)
        check_declared(plan)
    return plan


def idle_looks(plan: TrainingPlan) -> str | None:
    """Which of the declared looks can decide nothing, whatever is measured: too few units for their level."""
    gate, (units, names) = plan.table.gate, dev_units(plan)
    levels = [nominal_level(look, gate.looks, gate.alpha / plan.challengers) for look in range(1, gate.looks + 1)]
    idle = [level for level in levels if fewest_units(level) > units]
    if not idle:
        return None
    which = f"look 1 of {gate.looks}" if len(idle) == 1 else f"looks 1 to {len(idle)} of {gate.looks}"
    return (
        f"{which} can decide nothing: {units} dev {names} reach {p_equation(2.0 ** (1 - units))} at best, "
        f"and p has to be {p_value(idle[-1])}"
    )
