"""`tbench list`."""

from pathlib import Path

import click

from terminalbench.cli.options import json_option, labels_of, results_option
from terminalbench.cli.output import print_json, text_width


@click.command("list")
@results_option
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="NAME=VALUE",
    callback=labels_of,
    help="Only batches with this label; with several, with all of them.",
)
@json_option
def command(results: Path | None, labels: dict[str, str], as_json: bool) -> None:
    """List the batches of a results folder, newest first."""
    import json

    from terminalbench.index.results import list_batches
    from terminalbench.index.scan import scan_all
    from terminalbench.lab.select import results_root
    from terminalbench.text.numbers import cost, dollars, moment
    from terminalbench.text.table import columns, fitted

    root = results_root(results)
    scan_all(root)
    batches = list_batches(root, labels)
    if as_json:
        shown = [{**batch, "labels": json.loads(batch["labels"] or "{}")} for batch in batches]
        print_json(shown)
        return
    if not batches:
        click.echo("no batches with these labels" if labels else "no batches yet")
        return
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
                cost(batch["cost_usd"], batch["cost_unknown"], no_model=batch["no_model"])
                + (" (simulated)" if batch["simulated"] and not batch["no_model"] else "")
                + (", with an oracle" if batch["oracle"] else "")
                + (f", over budget by {dollars(batch['over_usd'])}" if batch["over_usd"] else ""),
                batch["name"] or "",
            ]
        )
    table = columns(rows, left=(0, 1, 6, 7))
    if max(map(len, table.splitlines())) > text_width():
        table = fitted([[row[0], *row[2:-1], f"{row[1]}, {row[-1]}"] for row in rows], (0, 5), text_width())
    click.echo(table)
    if any(batch["batch"] == "." for batch in batches):
        click.echo(_jobs(root))


def _jobs(root: Path) -> str:
    """The profiles of Harbor jobs that are not ours, and what tells those of one name apart."""
    from textwrap import fill

    from terminalbench.index.places import ForeignJobs
    from terminalbench.index.totals import profile_totals
    from terminalbench.index.views import open_view
    from terminalbench.text.foreign import printable, short
    from terminalbench.text.numbers import plural
    from terminalbench.text.table import columns

    view = open_view(ForeignJobs(root))
    rows = [
        [f"  {short(one.profile, 40)}", plural(one.planned, "trial"), f"{one.passed} passed", f"{one.failed} failed"]
        for one in profile_totals(view)
    ]
    notes = [fill(printable(note), 80, initial_indent="  ", subsequent_indent="    ") for note in view.notes]
    return "\n".join(["", "Harbor jobs, by profile", columns(rows, left=(0,)), *notes])
