"""`tbench validate`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from terminalbench.cli.options import experiments_argument, root_option
from terminalbench.errors import EXIT_OK, EXIT_USAGE, UserError
from terminalbench.text.numbers import plural

if TYPE_CHECKING:
    from terminalbench.experiments.experiment import Experiment


@click.command("validate")
@experiments_argument
@root_option
def command(experiments: tuple[Path, ...], root: Path | None) -> int:
    """Check experiment files: every problem of every file at once. Writes nothing."""
    worst = EXIT_OK
    for file in experiments:
        try:
            _check(file, root)
        except UserError as error:
            worst = EXIT_USAGE
            for line in error.lines():
                click.echo(line, err=True)
    return worst


def _check(file: Path, root: Path | None) -> None:
    from terminalbench.experiments.config import is_training_plan, load
    from terminalbench.experiments.environments import environment_needs
    from terminalbench.experiments.quarantine import is_quarantine_file, read_quarantine_file

    if is_quarantine_file(file):
        held = len(read_quarantine_file(file))
        click.echo(f"{file}: ok: {plural(held, 'task')} in quarantine")
        return
    if is_training_plan(file):
        from terminalbench.trainer.check import check_plan, idle_looks

        plan = check_plan(file, root)
        click.echo(f"{file}: ok: a training plan of {plural(plan.table.nights, 'night')} (tbench trainer run)")
        if (note := idle_looks(plan)) is not None:
            click.echo(f"{file}: note: {note}")
        return
    experiment = load(file, root, thorough=True)
    notes = _images(experiment)
    tasks, profiles = len(experiment.tasks), len(experiment.profiles)
    trials = tasks * profiles * experiment.run.attempts
    size = f"{plural(tasks, 'task')} x {plural(profiles, 'profile')} x {experiment.run.attempts}"
    click.echo(f"{file}: ok: {size} = {plural(trials, 'trial')}")
    for task in experiment.tasks:
        if (reason := experiment.quarantine.get((task.dataset, task.id))) is not None:
            click.echo(f"{file}: note: {task.id} is quarantined and will not run: {reason}")
    for note in (*experiment.notes, *environment_needs(experiment), *notes):
        click.echo(f"{file}: note: {note}")


def _images(experiment: "Experiment") -> list[str]:
    """What is to be said of the images of its tasks; an error when none of the tasks could run here."""
    import os

    from terminalbench.experiments.plan import exclusion_lines
    from terminalbench.records.trial import TaskRef
    from terminalbench.runner.images import books_of

    tasks = {TaskRef(task.id, task.dataset): task.source.folder for task in experiment.tasks}
    folders = {ref: folder for ref, folder in tasks.items() if folder is not None}
    books = books_of(folders, experiment.run, experiment.root, os.environ)
    left_out = books.exclusions()
    lines = exclusion_lines(left_out)
    if left_out and len(left_out) == len(experiment.tasks):
        listed = "\n  ".join(lines)
        raise UserError(
            f"none of {plural(len(left_out), 'task')} can run here:\n  {listed}", where=str(experiment.file)
        )
    return [*(f"left out by a run: {line}" for line in lines), *books.lines()]
