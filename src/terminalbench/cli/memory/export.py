"""`tbench memory export`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from terminalbench.cli.memory.options import filter_options, on_memory
from terminalbench.cli.options import PATH
from terminalbench.cli.output import print_json
from terminalbench.errors import UserError

if TYPE_CHECKING:
    from terminalbench.archivist.inventory import LessonFilter
    from terminalbench.archivist.store import Store


@click.command("export")
@click.option("-o", "--output", type=PATH, metavar="FILE", help="Where to write. Default: standard output.")
@on_memory()
@filter_options
def command(store: "Store", output: Path | None, wanted: "LessonFilter") -> None:
    """Write lessons as JSON lines, oldest first."""
    from terminalbench.archivist.inventory import each_lesson
    from terminalbench.files import write_lines
    from terminalbench.json_files import encode_line
    from terminalbench.text.numbers import plural

    found = list(each_lesson(store, wanted))[::-1]
    if output is None:
        for lesson in found:
            print_json(lesson, in_line=True)
        return
    if output.is_dir():
        raise UserError("is a folder", where=str(output), hint="name a file")
    if not output.parent.is_dir():
        raise UserError("no such folder", where=str(output.parent), hint="make it, or name another file")
    write_lines(output, map(encode_line, found))
    click.echo(f"{plural(len(found), 'lesson')} in {output}")
