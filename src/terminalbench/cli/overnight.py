"""`tbench overnight` and `tbench iterate`; `tbench episodes`, what all nights measured."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, override

import click

from terminalbench.cli.commands import group
from terminalbench.cli.options import PATH, ListCommand, json_option, root_option, watch_option
from terminalbench.cli.output import print_json, text_width
from terminalbench.errors import EXIT_INCOMPLETE, EXIT_OK
from terminalbench.experiments.project import current_project
from terminalbench.text.foreign import printable_json
from terminalbench.text.numbers import cost, moment, percent
from terminalbench.text.table import columns, fitted

if TYPE_CHECKING:
    from terminalbench.overnight.episodes import EpisodeStore
    from terminalbench.records.episode import Episode


OPTION_GROUPS = {
    "What most nights need": ("suite", "iterations", "until", "budget_usd", "lessons", "resume"),
    "What is attempted": ("tasks", "attempts", "models", "ollama_endpoint", "validation_rate", "validation_budget_usd"),
    "Learning": ("learn", "reflect_model", "reflect_budget_usd"),
}
"""The options of a night by what they are for, in the order of the help; the others follow."""


class NightCommand(ListCommand):
    """A command whose help has its options in groups, those that most people need first."""

    @override
    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, group by group."""
        records = {one.name: record for one in self.get_params(ctx) if (record := one.get_help_record(ctx)) is not None}
        groups = {title: [records.pop(name) for name in names] for title, names in OPTION_GROUPS.items()}
        for title, held in {**groups, "Where and how it runs": [*records.values()]}.items():
            with formatter.section(title):
                formatter.write_dl(held)


def _workers(_context: click.Context, _option: click.Parameter, given: str | None) -> int | str | None:
    if given is None or given == "auto":
        return given
    if not given.isdecimal() or not 1 <= int(given) <= 64:
        raise click.BadParameter(f'must be a number from 1 to 64, or auto; not "{given}"')
    return int(given)


workers_option: Any = click.option(
    "--workers",
    metavar="N|auto",
    callback=_workers,
    help="Iterations that run at once; auto: as many as memory, load and model servers allow. Default: 1.",
)


def _caps(command: Callable[..., Any]) -> Any:
    """Return what bounds `--workers auto` besides the machine."""
    for name, what in (
        ("--sandboxes", "Upper limit of sandboxes at once, for --workers auto."),
        ("--model-slots", "Requests that a local model server answers at once, for --workers auto."),
    ):
        command = click.option(name, type=click.IntRange(min=1), metavar="N", help=what)(command)
    return command


def _usd(name: str, what: str) -> Callable[..., Any]:
    """An amount of dollars."""
    return click.option(name, type=click.FloatRange(min=0, min_open=True), metavar="USD", help=what)


def night_options(command: Callable[..., Any]) -> Any:
    """The options of a night, but for `--workers`."""
    for option in reversed(
        [
            click.option(
                "--suite",
                type=PATH,
                metavar="FILE",
                help="Suite to attempt: an experiment TOML, a JSON suite, or a shipped suite (starter, tb-2.0).",
            ),
            click.option("--output", type=PATH, metavar="DIR", help="Folder of the night. Default: results/YYYYMMDD."),
            click.option(
                "--iterations",
                type=click.IntRange(min=1, max=100_000),
                metavar="N",
                help="Passes over the suite. Default: 10; with --until and without --learn, as many as there is time "
                "for.",
            ),
            click.option(
                "--until",
                metavar="TIME",
                help="Start nothing after this time of day, such as 07:00, or after this date and time.",
            ),
            _usd("--budget-usd", "Budget of the whole night."),
            click.option("--tasks", multiple=True, metavar="GLOB...", help="Only these tasks of the suite."),
            click.option(
                "--attempts", type=click.IntRange(min=1), metavar="K", help="Trials of each task in an iteration."
            ),
            click.option(
                "--model",
                "models",
                multiple=True,
                metavar="SPEC",
                help="claude-code[:MODEL], ollama:MODEL:TAG, local:FILE.gguf, PROVIDER/MODEL, oracle, nop or "
                "simulated; repeatable.",
            ),
            click.option("--ollama-endpoint", metavar="URL", help="The Ollama server. Default: this machine's own."),
            click.option(
                "--claude-validation-rate",
                "validation_rate",
                type=click.FloatRange(0, 1),
                metavar="R",
                help="Also have Claude Code attempt this share of the trials, and compare the results.",
            ),
            _usd("--validation-budget-usd", "Budget of the validation, part of the budget of the night."),
            click.option(
                "--lessons",
                type=click.Choice(["masked", "recall"]),
                is_flag=False,
                flag_value="masked",
                help="Learn from each iteration: run each profile with and without lessons, and add what was learned "
                "to the next iterations. masked (the default) never shows a lesson to the tasks that it comes from; "
                "recall does.",
            ),
            click.option(
                "--reflect-model",
                metavar="M",
                help="Chat model that looks for lessons; its calls are paid from the budget of the night. "
                "Default: built-in rules, which cost nothing.",
            ),
            _usd("--reflect-budget-usd", "Budget of that model, part of the budget of the night."),
            click.option(
                "--learn",
                type=PATH,
                metavar="PLAN.toml",
                help="Iterate the champion of this training on its train tasks, with and without lessons; then run "
                "one night of the training with the remaining time and budget.",
            ),
            click.option(
                "--executor",
                type=click.Choice(["local", "ray"]),
                help="Where trials run: this machine, or a Ray cluster. Default: the executor of the suite.",
            ),
            click.option(
                "--ray-address",
                metavar="HOST:PORT",
                help="Address of the Ray cluster. Default: $RAY_ADDRESS, else a new cluster on this machine.",
            ),
            click.option(
                "--seed",
                type=click.IntRange(min=0),
                help="Seed of the night; the seed of each iteration is derived from it.",
            ),
            click.option(
                "--dirty",
                type=click.Choice(["capture", "refuse"]),
                default="capture",
                help="What to do with uncommitted changes: pin them too, or refuse to start.",
            ),
            click.option(
                "--resume", type=PATH, metavar="DIR", help="Continue the night in this folder (or its state.json)."
            ),
            watch_option,
            json_option,
            root_option,
        ]
    ):
        command = option(command)
    return command


@click.command("overnight", cls=NightCommand)
@night_options
@workers_option
@_caps
def overnight_command(resume: Path | None, watch: bool, as_json: bool, **asked: Any) -> int:
    """Attempt a suite repeatedly through the night, with several workers, and write a report in the morning.

    Each iteration is a batch in the folder of the night. A worker that hangs or dies is ended, and its batch
    continues; a task that brings workers down is left out, and the report names it. kill -9, then --resume:
    nothing is lost, nothing runs twice. --resume keeps the options of the night; only --iterations, --until,
    --budget-usd and --workers can be changed.

    Exit code 0: everything was measured; 3: not everything; 1: nothing; 130: interrupted.
    """
    return run_night(resume, watch=watch, as_json=as_json, **asked)


def run_night(resume: Path | None, *, watch: bool, as_json: bool, learn: Path | None, **asked: Any) -> int:
    """Run a night and tell how it goes."""
    from terminalbench.cli.night_progress import NightTeller
    from terminalbench.overnight.begin import NightRequest
    from terminalbench.trainer.learning import run_learning_night

    request: NightRequest = NightRequest(**asked)
    with NightTeller(quiet=as_json, watch=watch) as teller:
        ended = run_learning_night(request, learn, resume, teller.listener())
    return teller.show_end(ended, as_json=as_json)


@click.command("iterate", cls=NightCommand)
@night_options
def iterate_command(resume: Path | None, watch: bool, as_json: bool, **asked: Any) -> int:
    """Attempt a suite repeatedly, one iteration after the other, as tbench overnight --workers 1 does.

    Exit code 0: everything was measured; 3: not everything; 1: nothing; 130: interrupted.
    """
    return run_night(resume, watch=watch, as_json=as_json, workers=1, command="iterate", **asked)


@group("episodes", __name__)
def episodes_command() -> None:
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
    from terminalbench.text.outcomes import fractions

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
    from terminalbench.files import write_bytes
    from terminalbench.overnight.episodes import export_csv, export_lines

    data = export_csv(episodes) if form == "csv" else export_lines(episodes)
    if output is not None:
        write_bytes(output, data)
    else:
        click.echo("\n".join(map(printable_json, data.decode().split("\n"))), nl=False)
