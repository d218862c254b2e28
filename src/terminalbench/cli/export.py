"""`tbench export`."""

from pathlib import Path
from typing import Any

import click

from terminalbench.cli.line import working
from terminalbench.cli.options import PATH
from terminalbench.cli.select import BatchChoice, on_batch
from terminalbench.errors import UserError

FORMATS = ("csv", "json", "parquet", "junit")
_ENDINGS: dict[str, Any] = {".csv": "csv", ".json": "json", ".parquet": "parquet", ".xml": "junit"}


@click.command("export")
@click.option("--format", "form", type=click.Choice(FORMATS), help="How to write it. Default: as FILE ends, else csv.")
@click.option(
    "--table", type=click.Choice(("trials", "findings")), default="trials", show_default=True, help="What to write."
)
@click.option("--all", "everything", is_flag=True, help="Every batch of the results folder.")
@click.option("--output", "-o", type=PATH, metavar="FILE", help="Default: standard output.")
@on_batch
@working
def command(where: BatchChoice, form: Any, table: str, everything: bool, output: Path | None) -> None:
    """Write the trials of a batch for other programs: a row a planned trial, and a row a try that was superseded.

    In JUnit XML a profile is a suite; what was not measured is an error or skipped, never a failure. Parquet needs the
    extra "dataframes".
    """
    from terminalbench.cli.select import one_batch
    from terminalbench.files import write_bytes
    from terminalbench.index.places import ForeignJobs
    from terminalbench.lab.select import results_root
    from terminalbench.live.status import open_results
    from terminalbench.report.export import encode_table, export_trials
    from terminalbench.text.foreign import printable_json

    ending = output.suffix.lower() if output is not None else ""
    form = form or _ENDINGS.get(ending, "csv")
    if _ENDINGS.get(ending, form) != form:
        raise UserError(f"{output} would hold {form}", hint="give it another ending, or leave out --format")
    if output is not None and not output.resolve().parent.is_dir():
        raise UserError("there is no such folder", where=str(output.parent), hint="make it first")
    if form == "parquet" and output is None:
        raise UserError("parquet is binary", hint="name a file with -o")
    if form == "junit" and table != "trials":
        raise UserError("JUnit XML holds trials, not findings", hint="--format csv, json or parquet")
    key: str | None = None
    if everything:
        where.refuse_name()
        folder = results_root(where.results)
    else:
        found = one_batch(where, foreign=True).batch
        folder = found.folder / found.only[0] if isinstance(found, ForeignJobs) and found.only else found.results_root
        key = found.folder.relative_to(found.results_root).as_posix()
    opened = open_results(folder)
    data = export_trials(opened, [key], form) if table == "trials" else encode_table(opened.findings(key), form)
    if output is None:
        click.echo(printable_json(data.decode()) if form == "json" else data.decode(), nl=False)
    else:
        write_bytes(output.resolve(), data)
        click.echo(f"{output}", err=True)
