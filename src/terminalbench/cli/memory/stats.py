"""`tbench memory stats`."""

from typing import TYPE_CHECKING

import click

from terminalbench.cli.memory.options import on_memory
from terminalbench.cli.options import json_option
from terminalbench.cli.output import print_json
from terminalbench.errors import EXIT_INCOMPLETE, EXIT_OK

if TYPE_CHECKING:
    from terminalbench.archivist.store import Store


@click.command("stats")
@on_memory()
@json_option
def command(store: "Store", as_json: bool) -> int:
    """Count what memory holds. Exit code 3 when a part of the log cannot be read."""
    from terminalbench.archivist.inventory import stats
    from terminalbench.archivist.store import ProblemKind
    from terminalbench.text.numbers import plural
    from terminalbench.text.table import columns

    found = stats(store)
    lost = any(problem.kind is ProblemKind.LOST for problem in found.problems)
    if as_json:
        print_json(found)
        return EXIT_INCOMPLETE if lost else EXIT_OK
    entries = plural(found.entries, "operation")
    click.echo(f"{plural(found.lessons, 'lesson')}, {found.measured} with a measured effect; {entries} in the log")
    tables = (found.states, found.kinds, found.scopes, found.tags, found.authors)
    for title, counts in zip(("state", "kind", "scope", "tag", "author"), tables, strict=True):
        if counts:
            rows = [[name, f"{number:,}"] for name, number in list(counts.items())[:10]]
            click.echo(f"\n{columns([[title, 'lessons'], *rows])}")
    for problem in found.problems:
        if problem.kind is not ProblemKind.LOST:  # those were said already
            click.echo(f"note: {store.place.log}: {problem.what}", err=True)
    return EXIT_INCOMPLETE if lost else EXIT_OK
