"""`tbench migrate`."""

from pathlib import Path

import click

from terminalbench.cli.options import PATH, experiment_argument
from terminalbench.errors import UserError
from terminalbench.text.paths import typed


@click.command("migrate")
@experiment_argument
@click.option("-o", "--output", type=PATH, metavar="NEW.toml", help="Write here. Default: print it.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def command(experiment: Path, output: Path | None, force: bool) -> None:
    """Convert an experiment of an older shape to version 2, and say what changed.

    Knows `[tasks] dataset/ids` with `[[profiles]] key = ...`, and `[tasks.<id>]` tables.
    """
    from terminalbench.experiments.migrate import migrate
    from terminalbench.files import write_project_file

    if output is not None and output.exists() and not force:
        raise UserError("exists already", where=str(output), hint="choose another name, or --force")
    migration = migrate(experiment)
    for change in migration.changes or ("nothing to change: it is of version 2 already",):
        click.echo(f"{experiment}: {change}", err=True)
    if output is None:
        click.echo(migration.text, nl=False)
        return
    write_project_file(output, migration.text)
    click.echo(f"written: {output} (next: tbench validate {typed(output)})", err=True)
