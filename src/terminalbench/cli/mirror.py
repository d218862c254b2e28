"""`tbench mirror`."""

from pathlib import Path

import click

from terminalbench.cli.options import ListCommand, experiment_argument, root_option
from terminalbench.errors import EXIT_INCOMPLETE, EXIT_OK, UserError


@click.command("mirror", cls=ListCommand)
@experiment_argument
@click.option("--batch", type=click.IntRange(min=0), help="Which batch. Default: the latest with data.")
@click.option(
    "--targets", multiple=True, metavar="NAME...", help="Session folders. Default: the TOML's artifacts.targets."
)
@click.option("--dest-dirname", default="artifacts", show_default=True, help="Folder of the batch to copy to.")
@root_option
def command(experiment: Path, batch: int | None, targets: tuple[str, ...], dest_dirname: str, root: Path | None) -> int:
    """Copy agent/sessions/<target>/ of every trial to <batch>/artifacts/<target>/<trial>/.

    A run does this by itself as trials end; this repeats it, copying only what changed.
    """
    import re

    from terminalbench.cli.select import noted
    from terminalbench.experiments.config import load
    from terminalbench.experiments.tables import SLUG, SLUG_DOC
    from terminalbench.lab.select import SelectedBatches, find_target
    from terminalbench.runner.mirror_artifacts import mirror_batch

    loaded = load(experiment, root)
    wanted = list(targets) or loaded.artifacts.targets
    for name in (*wanted, dest_dirname):
        if not re.fullmatch(SLUG, name):
            raise UserError(f'"{name}" must be {SLUG_DOC}')
    if dest_dirname in ("runs", "superseded", "workers", "analytics"):
        raise UserError(f"--dest-dirname {dest_dirname} has another use in a batch", hint="choose another name")
    if not wanted:
        raise UserError("names no targets", where=str(experiment), hint="set [artifacts] targets, or --targets")
    folder = noted(SelectedBatches((find_target(loaded, batch, with_data=True),))).batches[0]
    done = mirror_batch(folder.runs, wanted, folder.folder / dest_dirname)
    click.echo(f"{done.copied} copied, {done.unchanged} unchanged, {len(done.failed)} failed")
    for failure in done.failed:
        click.echo(f"failed: {failure}", err=True)
    return EXIT_INCOMPLETE if done.failed else EXIT_OK
