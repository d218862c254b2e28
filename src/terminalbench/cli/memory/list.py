"""`tbench memory list`."""

from typing import TYPE_CHECKING

import click

from terminalbench.cli.memory.options import filter_options, on_memory, table
from terminalbench.cli.options import json_option
from terminalbench.cli.output import print_json, text_width

if TYPE_CHECKING:
    from terminalbench.archivist.inventory import LessonFilter
    from terminalbench.archivist.store import Store


@click.command("list")
@on_memory()
@filter_options
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, metavar="N", help="Only the newest N.")
@json_option
def command(store: "Store", wanted: "LessonFilter", limit: int, as_json: bool) -> None:
    """List lessons, newest first."""
    from itertools import islice

    from terminalbench.archivist.inventory import each_lesson

    found = list(islice(each_lesson(store, wanted), limit + 1))
    if as_json:
        print_json(found[:limit])
    elif not found:
        anything = next(each_lesson(store), None) is not None
        click.echo("no lesson fits" if anything else "no lessons: tbench memory add writes one")
    else:
        click.echo(table(found[:limit], text_width()))
        if len(found) > limit:
            click.echo(f"only the newest {limit}; --limit shows more", err=True)
