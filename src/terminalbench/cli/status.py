"""`tbench status`."""

from pathlib import Path

import click

from terminalbench.cli.options import json_option, results_option
from terminalbench.cli.output import print_json


@click.command("status")
@results_option
@json_option
def command(results: Path | None, as_json: bool) -> None:
    """Show what runs now, for this user: batches (this project's first), their processes, how far they are."""
    from terminalbench.experiments.batch import Batch
    from terminalbench.lab.select import of_this_project, results_root
    from terminalbench.live.status import running_batches
    from terminalbench.text.foreign import printable
    from terminalbench.text.numbers import NOTHING, cost, duration, moment
    from terminalbench.text.outcomes import word
    from terminalbench.text.paths import from_here, typed
    from terminalbench.text.table import columns

    found = running_batches(results_root(results) if results else None)
    found.sort(key=lambda status: not of_this_project(Batch(Path(status.batch))))
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("nothing is running")
        return
    rows = [["batch", "state", "pid", "since", "trials", "outcomes", "cost", "left"]]
    for status in found:
        outcomes = ", ".join(f"{count} {word(name)}" for name, count in status.outcomes.items()) or NOTHING
        pid = str(status.runner) if status.runner is not None else "-"
        spent = cost(status.cost_usd, status.cost_unknown)
        counts = {"running": status.running, "waiting": status.to_start, "held": status.held}
        done = f"{status.ended}/{'?' if status.planned is None else status.planned}"
        trials = ", ".join([done, *(f"{count} {name}" for name, count in counts.items() if count)])
        since, left = moment(status.since), duration(status.left_sec)
        rows.append([from_here(status.batch), status.state, pid, since, trials, outcomes, spent, left])
    click.echo(columns(rows, left=range(8)))
    for status in found:
        for line in status.lines:
            click.echo(f"{from_here(status.batch)}: {printable(line)}")
    for folder, line in _nights([Path(status.batch) for status in found]).items():
        click.echo(f"night {from_here(folder)}: {printable(line)} (tbench watch {typed(folder)})")


def _nights(batches: list[Path]) -> dict[Path, str]:
    """The nights that running batches belong to, each in a line."""
    from terminalbench.overnight.folder import NightFolder
    from terminalbench.watch.night import total_line
    from terminalbench.watch.night_feed import NightFeed

    found = {}
    for folder in dict.fromkeys(batch.parents[2] for batch in batches):
        if all(file.is_file() for file in (NightFolder(folder).config_json, NightFolder(folder).state_json)):
            feed = NightFeed(NightFolder(folder))
            feed.poll()
            found[folder] = total_line(feed)
    return found
