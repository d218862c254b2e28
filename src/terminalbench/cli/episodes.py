"""`tbench episodes`."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from terminalbench.cli.commands import group
from terminalbench.cli.options import PATH, json_option, root_option
from terminalbench.cli.output import print_json, text_width
from terminalbench.errors import EXIT_INCOMPLETE, EXIT_OK
from terminalbench.experiments.project import current_project
from terminalbench.files import write_bytes
from terminalbench.text.foreign import printable_json
from terminalbench.text.numbers import cost, moment, percent
from terminalbench.text.outcomes import fractions
from terminalbench.text.table import columns, fitted

if TYPE_CHECKING:
    from terminalbench.overnight.episodes import EpisodeStore
    from terminalbench.records.episode import Episode


@group("episodes", __name__)
def command() -> None:
    """The episodes of a project: each iteration of every night, by profile."""


STATUSES = ("success", "partial", "failed")


def on_store(command: Callable[..., int | None]) -> Any:
    """A command on the store of a project: `--root` becomes `store`. Lines that cannot be read are said."""

    @wraps(command)
    def called(root: Path | None, **rest: Any) -> int | None:
        from terminalbench.overnight.episodes import EpisodeStore

        store = EpisodeStore.of_project(current_project(root))
        for line in store.read().unreadable:
            click.echo(f"note: {store.file}, line {line.number} cannot be read: {line.reason}", err=True)
        return command(store=store, **rest)

    return root_option(called)


def episode_filters(command: Callable[..., int | None]) -> Any:
    """The options that pick episodes become `episodes`, newest first."""

    @wraps(command)
    def called(store: "EpisodeStore", status: str | None, **rest: Any) -> int | None:
        from terminalbench.overnight.episodes import EpisodeFilter
        from terminalbench.records.episode import EpisodeStatus

        wanted = {name: rest.pop(name) for name in ("run_id", "model", "since", "suite", "limit")}
        state = EpisodeStatus(status) if status is not None else None
        return command(episodes=store.query(EpisodeFilter(status=state, **wanted)), **rest)

    for option in (
        click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the newest N episodes."),
        click.option("--suite", metavar="NAME", help="Only episodes of this suite."),
        click.option("--since", metavar="DAY", help="Only episodes that ended on or after this day, e.g. 2026-01-31."),
        click.option("--status", type=click.Choice(STATUSES), help="Only episodes with this status."),
        click.option("--model", metavar="SPEC", help="Only episodes of this model, as written for --model."),
        click.option("--run", "run_id", metavar="ID", help="Only episodes of this night."),
    ):
        called = option(called)
    return called


@click.command("list")
@on_store
@episode_filters
@json_option
def list_command(episodes: "list[Episode]", as_json: bool) -> None:
    """List episodes, newest first."""
    from terminalbench.overnight.summary_model import model_name

    if as_json:
        print_json(episodes)
        return
    if not episodes:
        click.echo("no episodes yet: tbench iterate and tbench overnight record them")
        return
    rows = [["episode", "ended (UTC)", "status", "pass rate", "passed", "cost", "model"]]
    for one in episodes:
        summary = one.summary
        ended, rate = moment(one.finished_at or one.started_at), percent(summary.pass_rate)
        passed = f"{summary.passed}/{summary.measured} of {summary.total}"
        spent = cost(one.cost.usd, one.cost.unknown_trials)
        model = model_name(one.model, one.profile, simulated=one.simulated)
        rows.append([one.id, ended, one.status.value, rate, passed, spent, model])
    click.echo(fitted(rows, (0, 1, 2, 6), text_width()))


@click.command("show")
@click.argument("episode", metavar="EPISODE")
@on_store
@json_option
def show_command(episode: str, store: "EpisodeStore", as_json: bool) -> None:
    """Show one episode: what was run, the outcome, and its tasks while their results exist."""
    from terminalbench.overnight.summary_model import model_name

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


@click.command("baseline")
@click.argument("episode", metavar="EPISODE")
@on_store
@json_option
def baseline_command(episode: str, store: "EpisodeStore", as_json: bool) -> int:
    """Show the baseline of an episode: an earlier run of the same profile on the same tasks, if there is one.

    Exit code 3 when there is none.
    """
    from terminalbench.overnight.episodes import BASELINE_RULE
    from terminalbench.overnight.model_summary import against_earlier

    one = store.find(episode)
    results = store.results(one)
    before = one.started_at or one.finished_at
    found = against_earlier(store, [results], run_id=one.run_id, before=before) if results and before else None
    if as_json:
        print_json({"episode": one.id, "baseline": found, "rule": BASELINE_RULE})
    elif found is not None:
        click.echo(f"{one.id}: {found.sentence}\nbaseline: {found.episode}")
    elif results is None:
        click.echo(f"{one.id}: its results cannot be read any more: {one.results_path}")
    else:
        click.echo(f"{one.id} has no baseline.\n{BASELINE_RULE}")
    return EXIT_OK if found is not None else EXIT_INCOMPLETE


@click.command("export")
@on_store
@episode_filters
@click.option("-o", "--output", type=PATH, metavar="FILE", help="Write to this file. Default: standard output.")
@click.option(
    "--format",
    "form",
    type=click.Choice(("jsonl", "csv")),
    default="jsonl",
    help="Format: jsonl (one JSON document per line) or csv.",
)
def export_command(episodes: "list[Episode]", output: Path | None, form: str) -> None:
    """Write episodes for other programs, newest first."""
    from terminalbench.overnight.episodes import export_csv, export_lines

    data = export_csv(episodes) if form == "csv" else export_lines(episodes)
    if output is not None:
        write_bytes(output, data)
    else:
        click.echo("\n".join(map(printable_json, data.decode().split("\n"))), nl=False)
