"""`tbench prune`."""

from pathlib import Path

import click

from terminalbench.cli.line import working
from terminalbench.cli.names import batch_names
from terminalbench.cli.options import PATH, json_option, results_option
from terminalbench.cli.output import print_json
from terminalbench.errors import EXIT_FAILURE, EXIT_OK


@click.command("prune")
@click.argument("batches", nargs=-1, type=PATH, metavar="[BATCH]...", shell_complete=batch_names)
@click.option(
    "--days",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="Old is what was last written so long ago.",
)
@click.option(
    "--keep",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Newest batches of each experiment that stay.",
)
@click.option("--yes", is_flag=True, help="Do it. Without this, only list what would be removed.")
@results_option
@json_option
@working
def command(batches: tuple[Path, ...], days: float, keep: int, yes: bool, results: Path | None, as_json: bool) -> int:
    """Remove old batches, or those that are named, from a results folder; without --yes only say which.

    A batch stays that runs, or that another batch's comparison, an episode, a lesson, a training or a night names.
    """
    from datetime import UTC, datetime

    from terminalbench.lab.prune import RemovedBatches, find_old, remove
    from terminalbench.lab.select import results_root
    from terminalbench.text.numbers import moment, plural, size
    from terminalbench.text.table import columns

    root = results_root(results)
    found = find_old(root, batches, days=days, keep=keep, now=datetime.now(UTC))
    going = [one for one in found if one.stays is None]
    removed = remove(root, found) if yes else RemovedBatches((), ())
    if as_json:
        print_json({"found": found, "removed": removed.keys, "problems": removed.problems})
    else:
        rows = [
            [one.key, moment(one.written), size(one.bytes) if one.stays is None else "stays", one.stays or ""]
            for one in found
        ]
        if rows:
            click.echo(columns([["batch", "last written", "size", ""], *rows], left=(0, 1, 3)))
        freed = size(sum(one.bytes or 0 for one in going))
        count = plural(len(removed.keys) if yes else len(going), "batch", "batches")
        if yes:
            click.echo(f"removed {count}")
        elif going:
            click.echo(f"would remove {count}, {freed}; add --yes to do it")
        else:
            click.echo("nothing to remove")
    for problem in removed.problems:
        click.echo(f"error: {problem}", err=True)
    return EXIT_FAILURE if removed.problems else EXIT_OK
