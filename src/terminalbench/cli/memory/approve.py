"""`tbench memory approve`."""

from typing import TYPE_CHECKING

import click

from terminalbench.cli.memory.options import by_option, on_memory
from terminalbench.cli.options import json_option
from terminalbench.cli.output import print_json

if TYPE_CHECKING:
    from terminalbench.archivist.store import Store


@click.command("approve")
@click.argument("lesson")
@click.option("--reason", metavar="TEXT", help="Why.")
@by_option
@on_memory(write=True)
@json_option
def command(store: "Store", lesson: str, reason: str | None, by: str, as_json: bool) -> None:
    """Put a lesson into use on your word, whatever the check found in it. LESSON is its id, or how that begins."""
    from terminalbench.archivist.memory import approve

    after = approve(store, lesson, by=by, reason=reason)
    if as_json:
        print_json(after)
    else:
        click.echo(f"{after.id} is {after.state}: {after.reason}")
