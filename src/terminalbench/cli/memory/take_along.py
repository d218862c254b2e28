"""`tbench memory export` and `import`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from terminalbench.cli.memory.options import by_option, filter_options, on_memory, told
from terminalbench.cli.options import PATH, json_option
from terminalbench.cli.output import print_json
from terminalbench.errors import UserError

if TYPE_CHECKING:
    from terminalbench.archivist.inventory import LessonFilter
    from terminalbench.archivist.store import Store


@click.command("export")
@click.option("-o", "--output", type=PATH, metavar="FILE", help="Where to write. Default: standard output.")
@on_memory()
@filter_options
def export_command(store: "Store", output: Path | None, wanted: "LessonFilter") -> None:
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
        raise UserError("no such folder", where=str(output.parent), hint="create the folder, or name another file")
    write_lines(output, map(encode_line, found))
    click.echo(f"{plural(len(found), 'lesson')} in {output}")


@click.command("import")
@click.argument("file", type=PATH)
@by_option
@on_memory(write=True)
@json_option
def import_command(store: "Store", file: Path, by: str, as_json: bool) -> None:
    """Add exported lessons as candidates: approvals and measurements from elsewhere do not count here.

    To move a whole memory, copy memory.jsonl instead.
    """
    from terminalbench.archivist.inventory import import_lessons
    from terminalbench.text.numbers import plural

    if not file.is_file():
        raise UserError("no such file", where=str(file), hint="tbench memory export writes one")
    found = import_lessons(store, file, by=by)
    if as_json:
        print_json(found)
        return
    for added in found.added:
        click.echo(told(added))
    out = f"; {found.left_out} left out, retired or quarantined there" if found.left_out else ""
    click.echo(f"{plural(len(found.added), 'lesson')} read{out}")
