"""`tbench memory retire`."""

from typing import TYPE_CHECKING

import click

from terminalbench.cli.memory.options import by_option, on_memory
from terminalbench.cli.options import json_option
from terminalbench.cli.output import print_json

if TYPE_CHECKING:
    from terminalbench.archivist.store import Store


@click.command("retire")
@click.argument("lesson")
@click.option("--reason", metavar="TEXT", required=True, help="Why.")
@by_option
@on_memory(write=True)
@json_option
def command(store: "Store", lesson: str, reason: str, by: str, as_json: bool) -> None:
    """Take a lesson out of use. It stays in memory, so that the same is not learned again."""
    from terminalbench.archivist.memory import retire

    after = retire(store, lesson, by=by, reason=reason)
    if as_json:
        print_json(after)
    else:
        click.echo(f"{after.id} is {after.state}: {after.reason}")
