"""`tbench episodes list`."""

from typing import TYPE_CHECKING

import click

from terminalbench.cli.episodes.options import episode_filters, on_store
from terminalbench.cli.options import json_option
from terminalbench.cli.output import print_json, text_width

if TYPE_CHECKING:
    from terminalbench.records.episode import Episode


@click.command("list")
@on_store
@episode_filters
@json_option
def command(episodes: "list[Episode]", as_json: bool) -> None:
    """List episodes, newest first."""
    from terminalbench.overnight.summary_model import model_name
    from terminalbench.text.numbers import cost, moment, percent
    from terminalbench.text.table import fitted

    if as_json:
        print_json(episodes)
        return
    if not episodes:
        click.echo("no episodes: tbench iterate and tbench overnight record them")
        return
    rows = [["episode", "ended (UTC)", "status", "pass rate", "passed", "cost", "model"]]
    for one in episodes:
        summary = one.summary
        rows.append(
            [
                one.id,
                moment(one.finished_at or one.started_at),
                one.status.value,
                percent(summary.pass_rate),
                f"{summary.passed}/{summary.measured} of {summary.total}",
                cost(one.cost.usd, one.cost.unknown_trials),
                model_name(one.model, one.profile, simulated=one.simulated),
            ]
        )
    click.echo(fitted(rows, (0, 1, 2, 6), text_width()))
