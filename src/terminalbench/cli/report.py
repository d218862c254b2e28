"""`tbench report`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from terminalbench.cli.options import results_option, root_option
from terminalbench.errors import EXIT_OK, UserError

if TYPE_CHECKING:
    from terminalbench.experiments.batch import Batch
    from terminalbench.report.write import Source


@click.command("report")
@click.argument("targets", nargs=-1, type=click.Path(path_type=Path), metavar="[EXPERIMENT.toml|BATCH]...")
@click.option("--batch", "numbers", metavar="N|N,M|all", help="Which batches of the experiment. Default: the latest.")
@click.option("--output", "-o", type=click.Path(path_type=Path), metavar="DIR", help="Default: the batch's analytics/.")
@results_option
@root_option
def command(
    targets: tuple[Path, ...], numbers: str | None, output: Path | None, results: Path | None, root: Path | None
) -> int:
    """Write report.html and comparison_report.md of a batch: one file each, made to be read and passed on.

    Without a target: the newest batch. The report is about the newest of the batches that are named; several give a
    trend. What tbench analyze found is part of it.
    """
    from terminalbench.cli.analyzing import place
    from terminalbench.report.write import open_source, write_report

    batches = _batches(targets, numbers, results, root)
    sources = sorted((open_source(batch) for batch in batches), key=_created)
    page, text = write_report(sources[-1], sources[:-1], output.resolve() if output else None)
    click.echo(f"{place(page)}\n{place(text)}")
    return EXIT_OK


def _batches(targets: tuple[Path, ...], numbers: str | None, results: Path | None, root: Path | None) -> "list[Batch]":
    from terminalbench.cli.analyze import find_batches_of
    from terminalbench.lab.select import find_target

    if numbers is not None:
        if len(targets) != 1 or targets[0].is_dir():
            raise UserError("--batch goes with one experiment file", hint="name the batch folders instead")
        return list(find_batches_of(targets[0], numbers, results, root).batches)
    found = [find_target(target, None, results, root).batch for target in targets or (None,)]
    return list({batch.folder: batch for batch in found}.values())


def _created(source: "Source") -> tuple[str, str]:
    return (source.view.plan.provenance.created_at or "", str(source.batch.folder))
