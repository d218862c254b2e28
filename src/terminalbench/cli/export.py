"""`tbench export`."""

from pathlib import Path
from typing import Any

import click

from terminalbench.cli.options import results_option, root_option
from terminalbench.errors import EXIT_OK, UserError

FORMATS = ("csv", "json", "parquet", "junit")


@click.command("export")
@click.argument("target", type=click.Path(path_type=Path), metavar="[EXPERIMENT.toml|BATCH]", required=False)
@click.option("--format", "form", type=click.Choice(FORMATS), default="csv", show_default=True, help="How to write it.")
@click.option(
    "--table", type=click.Choice(("trials", "findings")), default="trials", show_default=True, help="What to write."
)
@click.option("--batch", type=int, metavar="N", help="Which batch of the experiment. Default: the latest.")
@click.option("--all", "everything", is_flag=True, help="Every batch of the results folder.")
@click.option("--output", "-o", type=click.Path(path_type=Path), metavar="FILE", help="Default: standard output.")
@results_option
@root_option
def command(
    target: Path | None,
    form: Any,
    table: str,
    batch: int | None,
    everything: bool,
    output: Path | None,
    results: Path | None,
    root: Path | None,
) -> int:
    """Write the trials of a batch for other programs: a row a planned trial, and a row a try that was superseded.

    In JUnit XML a profile is a suite; what was not measured is an error or skipped, never a failure. Parquet needs the
    extra "dataframes".
    """
    from terminalbench.cli.select import one_batch
    from terminalbench.files import write_bytes
    from terminalbench.index.results import open_results
    from terminalbench.lab.select import results_root
    from terminalbench.report.export import encode_table, export_trials

    if form == "parquet" and output is None:
        raise UserError("parquet is binary", hint="name a file with -o")
    if form == "junit" and table != "trials":
        raise UserError("JUnit XML holds trials, not findings", hint="--format csv, json or parquet")
    key: str | None = None
    if everything:
        if target is not None or batch is not None:
            raise click.UsageError("--all goes without a target")
        folder = results_root(results)
    else:
        found = one_batch(target, batch, results, root).batch
        folder = found.folder.parent.parent
        key = found.folder.relative_to(folder).as_posix()
    opened = open_results(folder)
    data = export_trials(opened, [key], form) if table == "trials" else encode_table(opened.findings(key), form)
    if output is None:
        click.echo(data.decode(), nl=False)
    else:
        write_bytes(output.resolve(), data)
        click.echo(f"{output}", err=True)
    return EXIT_OK
