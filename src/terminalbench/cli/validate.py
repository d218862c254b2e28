"""`tbench validate`."""

from pathlib import Path

import click

from terminalbench.cli.options import experiments_argument, root_option
from terminalbench.errors import EXIT_OK, EXIT_USAGE, UserError
from terminalbench.text.numbers import plural


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
    tasks, profiles = len(experiment.tasks), len(experiment.profiles)
    trials = tasks * profiles * experiment.run.attempts
    size = f"{plural(tasks, 'task')} x {plural(profiles, 'profile')} x {experiment.run.attempts}"
    click.echo(f"{file}: ok: {size} = {plural(trials, 'trial')}")
    for task in experiment.tasks:
        if (reason := experiment.quarantine.get((task.dataset, task.id))) is not None:
            click.echo(f"{file}: note: {task.id} is quarantined and will not run: {reason}")
    for note in (*experiment.notes, *environment_needs(experiment)):
        click.echo(f"{file}: note: {note}")
