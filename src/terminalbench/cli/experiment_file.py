"""`tbench validate`, `diff`, `migrate` and `schema`: what is done with an experiment file without running it."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from terminalbench.cli.options import PATH, experiment_argument, experiments_argument, json_option, root_option
from terminalbench.cli.output import print_json
from terminalbench.errors import EXIT_INCOMPLETE, EXIT_OK, EXIT_USAGE, UserError
from terminalbench.files import write_project_file
from terminalbench.text.numbers import plural
from terminalbench.text.paths import typed

if TYPE_CHECKING:
    from terminalbench.experiments.experiment import Experiment


@click.command("validate")
@experiments_argument
@root_option
def validate_command(experiments: tuple[Path, ...], root: Path | None) -> int:
    """Check experiment files, and report every problem of every file at once. Writes nothing."""
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
    from terminalbench.runner.environment import left_out_here
    from terminalbench.runner.repository import env_file_notes

    if is_quarantine_file(file):
        held = len(read_quarantine_file(file))
        click.echo(f"{file}: ok: {plural(held, 'task')} in quarantine")
        return
    if is_training_plan(file):
        from terminalbench.trainer.check import check_plan, forecast_lines, idle_looks

        plan = check_plan(file, root)
        click.echo(f"{file}: ok: a training plan of {plural(plan.table.nights, 'night')} (tbench trainer run)")
        if (note := idle_looks(plan)) is not None:
            click.echo(f"{file}: note: {note}")
        for line in forecast_lines(plan):
            click.echo(f"{file}: {line}")
        return
    experiment = load(file, root, thorough=True)
    notes = [*env_file_notes(profile.env_file for profile in experiment.profiles), *_images(experiment)]
    tasks, profiles = len(experiment.tasks), len(experiment.profiles)
    trials = tasks * profiles * experiment.run.attempts
    size = f"{plural(tasks, 'task')} x {plural(profiles, 'profile')} x {experiment.run.attempts}"
    click.echo(f"{file}: ok: {size} = {plural(trials, 'trial')}")
    for task in experiment.tasks:
        if (reason := experiment.quarantine.get((task.dataset, task.id))) is not None:
            click.echo(f"{file}: note: {task.id} is quarantined and will not run: {reason}")
    missing = left_out_here(experiment.profiles, experiment.root, os.environ, experiment.run.container_env)
    if missing:
        many = sum(map(len, missing.values()))
        click.echo(f"{file}: note: a run here would leave out {many} of {plural(profiles, 'profile')}:")
    for why, keys in missing.items():
        click.echo(f"{file}: note: a run leaves out {', '.join(keys)}: {why}")
    for note in (*experiment.notes, *environment_needs(experiment), *notes):
        click.echo(f"{file}: note: {note}")


def _images(experiment: "Experiment") -> list[str]:
    """Return what is to be said of the images of its tasks; an error when none of the tasks could run here."""
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
    return [*(f"a run leaves out {line}" for line in lines), *books.lines()]


@click.command("diff")
@experiment_argument
@click.argument("a")
@click.argument("b")
@json_option
@root_option
def diff_command(experiment: Path, a: str, b: str, as_json: bool, root: Path | None) -> None:
    """Show what differs between profiles A and B, prompt and configuration text included.

    KEY@N is a profile as batch N was planned with it: `tbench diff FILE mine@0 mine` shows which files changed since.
    """
    from terminalbench.experiments.config import load
    from terminalbench.experiments.profile_changes import differences
    from terminalbench.lab.plan import treatment

    loaded = load(experiment, root)
    old, new = (treatment(loaded, name) for name in (a, b))
    found = differences(old.content, new.content)
    if as_json:
        aspects = [{"aspect": d.aspect, a: d.old, b: d.new} for d in found]
        document = {"a": {"key": a, "id": old.id}, "b": {"key": b, "id": new.id}, "differences": aspects}
        print_json(document)
        return
    click.echo(f"--- {a} {old.id}\n+++ {b} {new.id}")
    if not found:
        click.echo("the same treatment")
    for difference in found:
        click.echo(f"\n{difference.aspect}")
        for line in difference.lines():
            click.echo(f"  {line}")


@click.command("migrate")
@experiment_argument
@click.option("-o", "--output", type=PATH, metavar="NEW.toml", help="Write here. Default: print it.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def migrate_command(experiment: Path, output: Path | None, force: bool) -> int:
    """Convert an experiment in an older format to version 2, and list the changes.

    Knows `[tasks] dataset/ids` with `[[profiles]] key = ...`, and `[tasks.<id>]` tables. Exit code 3: the result has
    problems left, which are named.
    """
    from terminalbench.experiments.migrate import migrate, remaining

    if output is not None and output.exists() and not force:
        raise UserError("exists already", where=str(output), hint="choose another name, or give --force")
    migration = migrate(experiment)
    for change in migration.changes or ("nothing to change: the file already has version 2",):
        click.echo(f"{experiment}: {change}", err=True)
    if output is None:
        click.echo(migration.text, nl=False)
    else:
        write_project_file(output, migration.text)
        click.echo(f"written: {output} (next: tbench validate {typed(output)})", err=True)
    left = remaining(migration.text, output or experiment)
    for line in left.lines() if left is not None else ():
        click.echo(
            line if output is not None else f"to be fixed by hand, with line numbers of the new file: {line}", err=True
        )
    return EXIT_OK if left is None else EXIT_INCOMPLETE


@click.command("schema")
@click.option("--markdown", is_flag=True, help="Print the documentation of every key instead.")
def schema_command(markdown: bool) -> None:
    """Print the JSON Schema of the experiment file, for editors.

    In VS Code with Even Better TOML: save it as experiment.schema.json and start the TOML with
    "#:schema ./experiment.schema.json".
    """
    import json

    from terminalbench.experiments.schema import json_schema, key_tables

    text = key_tables() if markdown else json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
    click.echo(text, nl=False)
