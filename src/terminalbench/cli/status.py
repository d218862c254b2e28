"""`tbench status`."""

from pathlib import Path

import click

from terminalbench.cli.options import json_option, results_option
from terminalbench.errors import EXIT_OK
from terminalbench.lab.select import from_here, results_root


@click.command("status")
@results_option
@json_option
def command(results: Path | None, as_json: bool) -> int:
    """Show what runs now, for this user: batches (this project's first), their processes, how far they are."""
    from terminalbench.experiments.batch import Batch
    from terminalbench.files import encode_json
    from terminalbench.lab.select import of_this_project
    from terminalbench.live.alerts import AlertBoard
    from terminalbench.live.status import running_batches
    from terminalbench.live.waiting import WaitingRoom
    from terminalbench.report.text import Money, columns
    from terminalbench.report.trial import printable

    found = running_batches(results_root(results) if results else None)
    found.sort(key=lambda status: not of_this_project(Batch(Path(status.batch))))
    if as_json:
        click.echo(encode_json(found).decode(), nl=False)
        return EXIT_OK
    if not found:
        click.echo("nothing is running")
        return EXIT_OK
    rows = [["batch", "state", "pid", "since", "trials", "outcomes", "cost"]]
    for status in found:
        outcomes = ", ".join(f"{count} {name}" for name, count in status.outcomes.items()) or "-"
        pid = str(status.runner) if status.runner is not None else "-"
        cost = str(Money(status.cost_usd, status.cost_unknown))
        trials = f"{status.ended}/{status.planned}" + (f", {status.running} running" if status.running else "")
        since = (status.since or "-")[:16].replace("T", " ")
        rows.append([from_here(status.batch), status.state, pid, since, trials, outcomes, cost])
    click.echo(columns(rows, left=range(7)))
    for status in found:
        board = AlertBoard({alert.key: alert for alert in status.alerts})
        room = WaitingRoom({waiting.trial: waiting for waiting in status.waiting})
        for line in [*board.lines(), *room.lines()]:
            click.echo(f"{from_here(status.batch)}: {printable(line)}")
    return EXIT_OK
