"""`tbench swebench-pro list-instances`."""

from pathlib import Path
from typing import Any

import click

from terminalbench.cli.options import PATH, json_option
from terminalbench.cli.output import print_json
from terminalbench.cli.swebench_pro.options import instance_picks, picks_of
from terminalbench.errors import EXIT_INCOMPLETE, EXIT_OK, UserError


@click.command("list-instances")
@click.argument("rows", required=False, metavar="[FILE|hf:REVISION]")
@click.option("--tasks", type=PATH, metavar="DIR", help="Count the instances of this folder of tasks.")
@instance_picks
@click.option("--split", default="test", show_default=True, help="Split of the dataset, with hf:REVISION.")
@json_option
def command(
    rows: str | None,
    tasks: Path | None,
    split: str,
    as_json: bool,
    **given: Any,
) -> int:
    """Count instances by language and repository: of a dataset file, of Hugging Face, or of a folder of tasks."""
    from terminalbench.swebench_pro.dataset import read_rows
    from terminalbench.swebench_pro.instances import count, read_folder, select
    from terminalbench.text.numbers import plural
    from terminalbench.text.table import columns

    if (rows is None) == (tasks is None):
        raise UserError("name a file of rows or hf:REVISION, or a folder: --tasks DIR")
    read = read_rows(rows, split) if rows is not None else None
    found = read.instances if read is not None else read_folder(tasks or Path())
    wanted = select(found, picks_of(given))
    counts, refused = count(wanted), read.refused if read is not None else ()
    if as_json:
        ids = [{"instance_id": one.instance_id, "repo": one.repo, "language": one.language} for one in wanted]
        shown = {"count": counts.instances, "languages": counts.languages, "repositories": counts.repositories}
        print_json({**shown, "instances": ids, "refused": [str(row) for row in refused]})
    else:
        for title, table in (("language", counts.languages), ("repository", counts.repositories)):
            click.echo(columns([[title, "instances"], *([name, f"{n:,}"] for name, n in table.items())], left=(0,)))
            click.echo()
        click.echo(plural(counts.instances, "instance"))
    for row in refused:
        click.echo(f"refused: {row}", err=True)
    return EXIT_INCOMPLETE if refused else EXIT_OK
