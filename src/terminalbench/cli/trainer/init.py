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

    from terminalbench.experiments.project import marked_root
    from terminalbench.experiments.scaffold import project_files
    from terminalbench.files import write_project_file
    from terminalbench.text.paths import typed

    if file.exists():
        raise UserError("exists already", where=str(file), hint="name another file")
    folder = Path() if not file.is_absolute() else file.parent
    text = files("terminalbench.trainer").joinpath("quickstart.toml").read_text(encoding="utf-8")
    for path, held in {**project_files(folder, marked_root(folder.resolve())), file: text}.items():
        write_project_file(path, held)
        click.echo(f"written: {path}")
    click.echo(f"next: tbench trainer run {typed(file)}")
