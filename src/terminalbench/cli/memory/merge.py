"""`tbench memory merge`."""

from typing import TYPE_CHECKING

import click

from terminalbench.cli.memory.options import by_option, on_memory
from terminalbench.cli.options import json_option
from terminalbench.cli.output import print_json

if TYPE_CHECKING:
    from terminalbench.archivist.store import Store


@click.command("merge")
@click.argument("into", metavar="LESSON")
@click.argument("lessons", metavar="OTHER...", nargs=-1, required=True)
@click.option("--reason", metavar="TEXT", required=True, help="Why.")
@by_option
@on_memory(write=True)
@json_option
def command(store: "Store", into: str, lessons: tuple[str, ...], reason: str, by: str, as_json: bool) -> None:
    """Let LESSON take up others: it gets their evidence, tags and source tasks, and they are retired."""
    from terminalbench.archivist.memory import merge

    after = merge(store, into, lessons, by=by, reason=reason)
    if as_json:
        print_json(after)
    else:
        click.echo(f"{after.id} is {after.state} and took up {len(set(lessons))}")
