"""`tbench list`."""

from pathlib import Path

import click

from terminalbench.cli.options import json_option, results_option
from terminalbench.errors import EXIT_OK


@click.command("list")
@results_option
@json_option
def command(results: Path | None, as_json: bool) -> int:
    """List the batches of a results folder, newest first."""
    from terminalbench.files import encode_json
    from terminalbench.index.results import list_batches
    from terminalbench.index.scan import scan_all
    from terminalbench.lab.select import results_root
    from terminalbench.text.numbers import cost, moment
    from terminalbench.text.table import columns

    root = results_root(results)
    scan_all(root)
    batches = list_batches(root)
    if as_json:
        click.echo(encode_json(batches).decode(), nl=False)
        return EXIT_OK
    if not batches:
        click.echo("no batches yet")
        return EXIT_OK
    rows = [["batch", "created", "trials", "passed", "failed", "not measured", "cost", "name"]]
    for batch in batches:
        planned = batch["planned"] if batch["planned"] is not None else "?"
        rows.append(
            [
                batch["batch"],
                moment(batch["created_at"]),
                f"{batch['trials']}/{planned}",
                str(batch["passed"]),
                str(batch["failed"]),
                str(batch["not_measured"]),
                cost(batch["cost_usd"], batch["cost_unknown"]) + (" (simulated)" if batch["simulated"] else ""),
                batch["name"] or "",
            ]
        )
    click.echo(columns(rows, left=(0, 1, 6, 7)))
    return EXIT_OK
