"""`tbench compare`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from terminalbench.cli.completion import batch_names
from terminalbench.cli.options import PATH, json_option, reading_options, results_option, root_option
from terminalbench.cli.output import print_json, text_width, working

if TYPE_CHECKING:
    from terminalbench.formats.row import ReadOptions

METRICS = ("pass", "reward", "cost", "tokens", "time")
GATES = ("worse", "not-better", "not-equivalent")
DEPARTURES = (
    "baseline", "contrasts", "analysis", "attempts", "tasks", "profiles", "planned-trials", "top-up", "run-settings",
    "picked", "changed-tasks", "changed-profiles", "changed-bases", "lost-verdicts", "batches",
    "other",
)  # fmt: skip
"""`DepartureKind`, which is not loaded for a help text; a test compares them."""


@click.command("compare")
@click.argument(
    "targets", nargs=-1, type=PATH, metavar="[EXPERIMENT.toml|BATCH|JOBS|FILE]...", shell_complete=batch_names
)
@click.option(
    "--baseline", metavar="PROFILE", help="Compare the other profiles with this one. Default: the declared baseline."
)
@click.option(
    "--compare",
    "pairs",
    nargs=2,
    multiple=True,
    metavar="NEW OLD",
    help="Compare only these two profiles; repeatable. Default: the declared contrasts.",
)
@click.option("--metric", type=click.Choice(METRICS), default="pass", help="Measure to compare, as its mean per trial.")
@click.option(
    "--k",
    type=click.IntRange(min=1),
    help="Show pass@K and pass^K up to this K. Default: the number of attempts that every task has.",
)
@click.option(
    "--fail-if",
    type=click.Choice(GATES),
    help="Exit with 100 when this is true of any contrast, with 3 when a contrast is inconclusive.",
)
@click.option("--allow-undecided", is_flag=True, help="When the gate is undecided, say so and exit with 0.")
@click.option(
    "--accept",
    multiple=True,
    type=click.Choice(DEPARTURES),
    metavar="NAME",
    help="Accept this departure from the declared plan when the gate is judged; repeatable.",
)
@click.option(
    "--only",
    metavar="WHY",
    help="Leave out other batches with the same profiles, for this reason; it is recorded as a departure.",
)
@reading_options
@click.option(
    "--details", is_flag=True, help="Show everything: both ways of counting, both questions, costs and notes."
)
@click.option(
    "--by-snapshot", is_flag=True, help="Treat a profile with different lessons in memory as a different profile."
)
@results_option
@json_option
@root_option
@working
def command(
    targets: tuple[Path, ...],
    pairs: tuple[tuple[str, str], ...],
    fail_if: Any,
    allow_undecided: bool,
    accept: tuple[str, ...],
    details: bool,
    reading: "ReadOptions",
    results: Path | None,
    as_json: bool,
    root: Path | None,
    **question: Any,
) -> None:
    """Show which profile is better, by how much, and how certain that is.

    A target is an experiment file, a batch, a Harbor job or a folder of jobs; without one it is the newest
    batch. It can also be results of another tool: a table, Terminal-Bench 1, SWE-bench, Inspect, promptfoo, JUnit
    XML. Batches are pooled where a profile is unchanged; other batches of the same experiment with the same
    profiles are included too. A batch may still be running: the output names what is missing.
    """
    if (accept or allow_undecided) and fail_if is None:
        raise click.UsageError(f"--{'accept' if accept else 'allow-undecided'} works only with --fail-if")
    from terminalbench.cli.select import noted
    from terminalbench.lab.compare import compare, hold_gate
    from terminalbench.lab.select import select

    selected = noted(select(*targets, results=results, root=root, with_data=True, reading=reading))
    comparison = compare(*selected.targets, contrasts=pairs, **question)
    if as_json:
        print_json(comparison)
    else:
        from terminalbench.live.processes import resume_places
        from terminalbench.live.status import views_now
        from terminalbench.report.comparison import answer_text, comparison_text
        from terminalbench.report.sentences import next_steps

        last = selected.batches[-1]
        place = str(last.folder) if last.plan_json.is_file() else ""
        if details:
            text = comparison_text(comparison, text_width())
        else:
            resume = resume_places([last], views_now([last])) if place else {}
            steps = next_steps(comparison, place, next(iter(resume.values()), None))
            text = answer_text(comparison, text_width(), steps)
        click.echo(text, nl=False)
    if fail_if is not None:
        click.echo(hold_gate(comparison, fail_if, accept, allow_undecided=allow_undecided), err=as_json)
