"""`tbench query`."""

from pathlib import Path

import click

from terminalbench.cli.line import working
from terminalbench.cli.options import json_option, results_option
from terminalbench.cli.output import print_json
from terminalbench.lab.select import results_root
from terminalbench.text.foreign import flat
from terminalbench.text.numbers import plural

_CELL = 80


@click.command("query")
@click.argument("sql")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--limit", type=click.IntRange(min=0), default=1000, show_default=True, help="Most rows; 0: all.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    metavar="SEC",
    help="End it after so many seconds; 0: never.",
)
@results_option
@json_option
@working
def command(sql: str, as_csv: bool, limit: int, timeout: float, results: Path | None, as_json: bool) -> None:
    """Ask the index of all batches a question in SQL. It can only read.

    Tables: batches, trials, findings (see docs/results.md). For example
    "SELECT profile, avg(cost_usd) FROM trials GROUP BY profile".
    """
    from terminalbench.index.scan import scan_all
    from terminalbench.index.sql import ask
    from terminalbench.report.export import csv_bytes
    from terminalbench.text.foreign import printable
    from terminalbench.text.table import columns

    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other")
    root = results_root(results)
    scan_all(root)
    answer = ask(root, sql, limit or None, timeout or None)
    if as_json:
        records = [{name: _plain(value) for name, value in record.items()} for record in answer.records()]
        print_json(records)
    elif as_csv:
        click.echo(csv_bytes(answer.columns, answer.rows).decode(), nl=False)
    else:
        rows = [[_short(value) for value in row] for row in answer.rows]
        numbers = [i for i in range(len(answer.columns)) if any(isinstance(r[i], int | float) for r in answer.rows)]
        left = [i for i in range(len(answer.columns)) if i not in numbers]
        click.echo(columns([[printable(name) for name in answer.columns], *rows], left=left))
    if answer.more:
        click.echo(f"only the first {plural(limit, 'row')}; --limit sets how many", err=True)


def _plain(value: object) -> object:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _short(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else flat(str(_plain(value)), _CELL)
