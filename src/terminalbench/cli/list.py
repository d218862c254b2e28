"""`tbench list`."""

from pathlib import Path

import click

from terminalbench.cli.line import working
from terminalbench.cli.names import batch_names
from terminalbench.cli.options import PATH, json_option, labels_of, results_option
from terminalbench.cli.output import print_json, text_width

_LEAST_NAME = 8
"""How much of a batch's name is worth its column; with less room it is a line of its own."""


@click.command("list")
@click.argument("target", type=PATH, required=False, metavar="[EXPERIMENT.toml|BATCH]", shell_complete=batch_names)
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
@working
def command(target: Path | None, results: Path | None, labels: dict[str, str], as_json: bool) -> None:
    """List the batches of a results folder, newest first; of one batch, its trials."""
    if target is not None:
        if labels:
            raise click.UsageError("--label picks batches; it does not go with one that is named")
        _list_trials(target, results, as_json=as_json)
        return
    import json

    from terminalbench.index.scan import scan_all
    from terminalbench.lab.select import no_batch_hint, results_root
    from terminalbench.live.status import batches_now
    from terminalbench.text.foreign import cut
    from terminalbench.text.numbers import cost, dollars, moment
    from terminalbench.text.table import columns, fitted

    root = results_root(results)
    scan_all(root)
    batches = batches_now(root, labels)
    if as_json:
        shown = [{**batch, "labels": json.loads(batch["labels"] or "{}")} for batch in batches]
        print_json(shown)
        return
    if not batches:
        hint = no_batch_hint(root)
        click.echo(("no batches with these labels" if labels else "no batches yet") + (f" ({hint})" if hint else ""))
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
                str(batch["not_measured"]) + (f", {batch['running']} running" if batch["running"] else ""),
                cost(batch["cost_usd"], batch["cost_unknown"], no_model=batch["no_model"])
                + (" (simulated)" if batch["simulated"] and not batch["no_model"] else "")
                + (", with an oracle" if batch["oracle"] else "")
                + (f", over budget by {dollars(batch['over_usd'])}" if batch["over_usd"] else ""),
                batch["name"] or "",
            ]
        )
    room = text_width() - max(map(len, columns([row[:-1] for row in rows], left=(0, 1, 6)).splitlines())) - 2
    if room < _LEAST_NAME:
        table = fitted([[row[0], *row[2:-1], f"{row[1]}, {row[-1]}"] for row in rows], (0, 5), text_width())
    else:
        table = columns([[*row[:-1], cut(row[-1], room)] for row in rows], left=(0, 1, 6, 7))
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


def _list_trials(name: Path, results: Path | None, *, as_json: bool) -> None:
    """The trials of one batch."""
    from terminalbench.index.results import trial_records
    from terminalbench.lab.trial import trials_now
    from terminalbench.report.trials import state, trials_text
    from terminalbench.text.paths import typed

    view = trials_now(name, results)
    if as_json:
        states = [state(cell, live=view.live) for cell in view.cells]
        rows = trial_records(view)
        print_json([row | {"state": states[place] if place < len(states) else None} for place, row in enumerate(rows)])
        return
    click.echo(trials_text(view, text_width()), nl=False)
    click.echo(f"\none of them: tbench show {typed(name)} PROFILE TRIAL")
