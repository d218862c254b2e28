"""`tbench trainer init`."""

from pathlib import Path

import click

from terminalbench.cli.options import PATH
from terminalbench.errors import UserError


@click.command("init")
@click.argument(
    "file", type=PATH, default=Path("experiments/training-quickstart.toml"), metavar="[PLAN.toml]", required=False
)
def command(file: Path) -> None:
    """Write a training plan to start from. It runs as it is: no Docker, no key, the model only pretends.

    Default: experiments/training-quickstart.toml. docs/tbench/training.md goes through it.
    """
    from importlib.resources import files

    from terminalbench.files import write_project_file
    from terminalbench.text.paths import typed

    if file.exists():
        raise UserError("exists already", where=str(file), hint="name another file")
    text = files("terminalbench.trainer").joinpath("quickstart.toml").read_text(encoding="utf-8")
    write_project_file(file, text)
    click.echo(f"written: {file}")
    click.echo(f"next: tbench trainer run {typed(file)}")
