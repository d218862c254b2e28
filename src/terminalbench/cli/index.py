"""`tbench index`."""

from pathlib import Path

import click

from terminalbench.cli.line import working
from terminalbench.cli.options import json_option, results_option
from terminalbench.cli.output import print_json
from terminalbench.errors import EXIT_INCOMPLETE, EXIT_OK


@click.command("index")
@results_option
@click.option("--rebuild", is_flag=True, help="Forget everything and read all trials again.")
@json_option
@working
def command(results: Path | None, rebuild: bool, as_json: bool) -> int:
    """Bring the index up to date with what is on disk, and write each batch's runs/index.json.

    The index is a cache: it can be deleted at any time. Exit code 3: some files could not be read.
    """
    from terminalbench.errors import TbenchError
    from terminalbench.index.places import ForeignJobs, find_batches
    from terminalbench.index.queries import view_batch
    from terminalbench.index.results import export_index
    from terminalbench.index.scan import scan_all
    from terminalbench.lab.select import results_root
    from terminalbench.text.foreign import printable
    from terminalbench.text.numbers import plural
    from terminalbench.text.progress import tell

    root = results_root(results)
    report = scan_all(root, rebuild=rebuild, thorough=True, in_root=True)
    batches = list(find_batches(root))
    for place, batch in enumerate(batches):
        tell("writing runs/index.json", place, len(batches))
        if isinstance(batch, ForeignJobs):
            continue
        try:
            export_index(batch, view_batch(batch, root))
        except (TbenchError, OSError) as error:
            click.echo(f"not exported: {error}", err=True)
    tell("writing runs/index.json", len(batches), len(batches))
    if as_json:
        print_json(report)
    else:
        counts = f"{report.read} read, {report.removed} gone, {len(report.unreadable)} unreadable"
        click.echo(f"{plural(report.seen, 'trial')}: {counts}")
        for problem in report.unreadable:
            click.echo(f"unreadable: {printable(problem)}", err=True)
    return EXIT_INCOMPLETE if report.unreadable else EXIT_OK
