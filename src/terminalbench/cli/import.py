"""`tbench import`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from terminalbench.cli.line import working
from terminalbench.cli.options import PATH, json_option, reading_options, results_option
from terminalbench.cli.output import print_json

if TYPE_CHECKING:
    from terminalbench.formats.row import ReadOptions


@click.command("import")
@click.argument("source", type=PATH, metavar="FILE|FOLDER")
@click.option("--name", metavar="NAME", help="What to call it in the results folder. Default: as the file.")
@click.option("--profile", metavar="NAME", help="The profile of all its rows. Default: as the file tells.")
@click.option("--copy", is_flag=True, help="Copy the files that are read beside the batch. Default: name their place.")
@click.option("--update", is_flag=True, help="Take a source that has changed as it is now, in place of what it was.")
@reading_options
@results_option
@json_option
@working
def command(
    source: Path,
    name: str | None,
    copy: bool,
    update: bool,
    reading: "ReadOptions",
    results: Path | None,
    as_json: bool,
) -> None:
    """Make a batch of results that another tool wrote: list, compare, report, view and query them like any other.

    Recognised by content: tables (CSV, JSONL, Parquet), Terminal-Bench 1, Harbor jobs, SWE-bench and SWE-Bench Pro,
    Inspect logs, promptfoo, JUnit XML. docs/import.md has an example of each.
    """
    from terminalbench.lab.imports import ImportRequest, ImportState, import_results
    from terminalbench.text.foreign import printable
    from terminalbench.text.numbers import plural
    from terminalbench.text.paths import from_here, typed

    made = import_results(source, results, ImportRequest(reading=reading, name=name, copy=copy, update=update))
    record = made.record
    if as_json:
        told = {"batch": made.batch.folder, "state": made.state, "difference": made.difference, "imported": record}
        print_json(told)
        return
    place = from_here(made.batch.folder)
    profiles, tasks = len(made.plan.jobs), len({task.ref for job in made.plan.jobs for task in job.tasks})
    held = f"{plural(record.rows, 'trial')} of {plural(profiles, 'profile')} on {plural(tasks, 'task')}"
    if made.state is ImportState.SAME:
        click.echo(f"{printable(place)}: imported before, on {record.at[:10]}; nothing changed")
    else:
        changed = f", {made.difference}" if made.difference else ""
        click.echo(f"{printable(place)}: {record.format}, {held}{changed}")
    for count, cause in ((count, cause) for cause, count in record.rejected.items()):
        click.echo(f"  not used: {count}, {printable(cause)}")
    for note in record.notes:
        click.echo(f"  {printable(note)}")
    click.echo(f"tbench compare {typed(Path(place))}")
