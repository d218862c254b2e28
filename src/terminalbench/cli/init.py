"""`tbench init`."""

from pathlib import Path

import click

from terminalbench.cli.options import PATH
from terminalbench.errors import UserError
from terminalbench.text.paths import typed


@click.command("init")
@click.argument("folder", type=PATH, default=Path(), metavar="[DIR]")
@click.option("--agent", default="claude-code", show_default=True, help="Agent of the profiles.")
@click.option("--model", help="Model of the profiles.")
@click.option("--dataset", default="starter", show_default=True, help="Where the tasks come from.")
@click.option("--slug", default="first", show_default=True, help="Name of the file and of its results folder.")
def command(folder: Path, agent: str, model: str | None, dataset: str, slug: str) -> None:
    """Write a commented experiment to start from, in DIR/experiments/. Asks nothing."""
    import re

    from terminalbench.experiments.config import RESERVED, RESERVED_SLUGS, load
    from terminalbench.experiments.scaffold import scaffold
    from terminalbench.experiments.tables import SLUG, SLUG_DOC
    from terminalbench.files import write_project_file

    if not re.fullmatch(SLUG, slug):
        raise UserError(f"--slug must be {SLUG_DOC}")
    if slug.startswith(RESERVED_SLUGS):
        raise UserError(f"--slug {RESERVED}")
    for name, value in (("--model", model), ("--dataset", dataset)):
        if value is not None and re.search(r'["\\\x00-\x1f]', value):
            raise UserError(f"{name} must not hold quotes, backslashes or control characters")
    files = scaffold(folder, agent, model, dataset, slug)
    experiment, *others = files
    if experiment.exists():
        raise UserError("exists already", where=str(experiment), hint="choose another --slug")
    for path in [*(p for p in others if not p.exists()), experiment]:
        write_project_file(path, files[path])
        click.echo(f"written: {path}")
    load(experiment)
    click.echo(f"next: tbench plan {typed(experiment)}")
