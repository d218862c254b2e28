"""`tbench episodes export`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from terminalbench.cli.episodes.options import episode_filters, on_store
from terminalbench.cli.options import PATH

if TYPE_CHECKING:
    from terminalbench.records.episode import Episode


@click.command("export")
@on_store
@episode_filters
@click.option("-o", "--output", type=PATH, metavar="FILE", help="Write it here, not to standard output.")
@click.option(
    "--format",
    "form",
    type=click.Choice(("jsonl", "csv")),
    default="jsonl",
    show_default=True,
    help="A JSON document a line, or a table.",
)
def command(episodes: "list[Episode]", output: Path | None, form: str) -> None:
    """Write episodes for other programs, newest first."""
    from terminalbench.files import write_bytes
    from terminalbench.overnight.episodes import export_csv, export_lines
    from terminalbench.text.foreign import printable_json

    data = export_csv(episodes) if form == "csv" else export_lines(episodes)
    if output is not None:
        write_bytes(output, data)
    else:
        text = data.decode()
        click.echo("\n".join(map(printable_json, text.split("\n"))), nl=False)
