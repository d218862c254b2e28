"""`tbench memory log`."""

from typing import TYPE_CHECKING

import click

from terminalbench.cli.memory.options import on_memory
from terminalbench.cli.options import json_option
from terminalbench.cli.output import print_json, text_width

if TYPE_CHECKING:
    from terminalbench.archivist.store import Store


@click.command("log")
@click.argument("lesson", required=False)
@on_memory()
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, metavar="N", help="Only the newest N.")
@json_option
def command(store: "Store", lesson: str | None, limit: int, as_json: bool) -> None:
    """Show the operations, newest first: all, or those on one LESSON."""
    from terminalbench.archivist.inventory import history
    from terminalbench.cli.memory.show import entry_line

    found = history(store, lesson, limit)
    if as_json:
        print_json(found)
        return
    width = text_width()
    click.echo("\n".join(entry_line(entry, width) for entry in found) or "nothing was done yet")
