"""`tbench episodes show`."""

from typing import TYPE_CHECKING

import click

from terminalbench.cli.episodes.options import on_store
from terminalbench.cli.options import json_option
from terminalbench.cli.output import print_json, text_width

if TYPE_CHECKING:
    from terminalbench.overnight.episodes import EpisodeStore


@click.command("show")
@click.argument("episode", metavar="EPISODE")
@on_store
@json_option
def command(episode: str, store: "EpisodeStore", as_json: bool) -> None:
    """Show one episode: what was run, what it came to, and its tasks, as long as its results are there."""
    from terminalbench.overnight.summary_model import model_name
    from terminalbench.text.numbers import cost, moment, percent
    from terminalbench.text.outcomes import fractions
    from terminalbench.text.table import columns, fitted

    one = store.find(episode)
    results = store.results(one)
    if as_json:
        print_json({"episode": one, "results": results})
        return
    summary = one.summary
    facts = [
        ("episode", one.id),
        ("model", f"{model_name(one.model, one.profile, simulated=one.simulated)}"),
        ("suite", f"{one.suite} {one.suite_version}"),
        ("from, to", f"{moment(one.started_at)}, {moment(one.finished_at)} UTC"),
        ("status", f"{one.status.value}: {summary.measured} of {summary.total} trials measured"),
        ("pass rate", f"{percent(summary.pass_rate)}, {summary.passed} passed, {summary.failed} failed"),
        ("not measured", f"{summary.errored} errored, {summary.not_run} not run"),
        ("cost", cost(one.cost.usd, one.cost.unknown_trials)),
        ("results", one.results_path),
        ("profile id", one.profile_id),
        ("task digest", one.task_digest or "unknown"),
        ("suite digest", one.suite_digest),
        ("code", one.code_digest or "unknown"),
    ]
    click.echo(columns([list(fact) for fact in facts], left=(0, 1)))
    if results is None:
        click.echo("\nits results can no longer be read", err=True)
        return
    rows = [["task", "attempts", "trials"]]
    for task in results.tasks:
        path = next((trial.path for trial in task.trials if trial.path is not None), None)
        rows.append([task.task_id, fractions([trial.outcome for trial in task.trials]), path or "-"])
    click.echo(f"\n{fitted(rows, (0, 1, 2), text_width())}")
