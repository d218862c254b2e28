"""Checking a training plan without running it."""

from pathlib import Path
from tempfile import TemporaryDirectory

from terminalbench.trainer.evolvers.search import evolver_of
from terminalbench.trainer.plan import TrainingPlan, check_declared, load_plan


def check_plan(file: Path, root: Path | None = None) -> TrainingPlan:
    """The plan, as a run would take it. Raises UserError for all that a run refuses before its first trial.

    Nothing is written to the project: no split, no text, no declaration.
    """
    with TemporaryDirectory() as scratch:
        plan = load_plan(file, root, Path(scratch))
        evolver_of(plan)
        check_declared(plan)
    return plan
