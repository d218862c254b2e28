"""`tbench episodes baseline`."""

from typing import TYPE_CHECKING

import click

from terminalbench.cli.episodes.options import on_store
from terminalbench.cli.options import json_option
from terminalbench.cli.output import print_json
from terminalbench.errors import EXIT_INCOMPLETE, EXIT_OK

if TYPE_CHECKING:
    from terminalbench.overnight.episodes import EpisodeStore


@click.command("baseline")
@click.argument("episode", metavar="EPISODE")
@on_store
@json_option
def command(episode: str, store: "EpisodeStore", as_json: bool) -> int:
    """Say what an episode is measured against: an earlier run of the same profile on the same tasks, or nothing.

    Exit code 3 when there is nothing to measure it against.
    """
    from terminalbench.overnight.earlier_nights import against_earlier
    from terminalbench.overnight.episodes import BASELINE_RULE

    one = store.find(episode)
    results = store.results(one)
    before = one.started_at or one.finished_at
    found = against_earlier(store, [results], run_id=one.run_id, before=before) if results and before else None
    if as_json:
        print_json({"episode": one.id, "baseline": found, "rule": BASELINE_RULE})
    elif found is not None:
        click.echo(f"{one.id}: {found.sentence}\nbaseline: {found.episode}")
    elif results is None:
        click.echo(f"{one.id}: its results can no longer be read: {one.results_path}")
    else:
        click.echo(f"{one.id} has no baseline.\n{BASELINE_RULE}")
    return EXIT_OK if found is not None else EXIT_INCOMPLETE
