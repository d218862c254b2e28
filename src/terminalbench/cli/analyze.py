"""`tbench analyze`, `tbench errors` and `tbench compare`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from terminalbench.cli.completion import batch_names
from terminalbench.cli.options import (
    PATH,
    ListCommand,
    json_option,
    on_batches,
    picks,
    reading_options,
    results_option,
    root_option,
)
from terminalbench.cli.output import print_json, text_width, working
from terminalbench.errors import EXIT_INCOMPLETE, EXIT_OK, UserError
from terminalbench.text.foreign import printable
from terminalbench.text.names import from_here
from terminalbench.text.numbers import plural
from terminalbench.text.reasons import doubt, failure_words
from terminalbench.text.table import wrapped

if TYPE_CHECKING:
    from terminalbench.analytics.divergence import ForkDecision
    from terminalbench.analytics.error_groups import DoubtfulGroup, ErrorReport, FailureGroup, OneSidedTask
    from terminalbench.analytics.judge.request import JudgeAsk
    from terminalbench.analytics.selection import Filter, Only
    from terminalbench.cli.progress import AnalysisTeller
    from terminalbench.formats.row import ReadOptions
    from terminalbench.lab.select import SelectedBatches


_NO_MODEL = "nothing was judged: no judge model is set (give --model M, or set [analysis] judge_model)"
_SET_MODEL = "give --model, or set [analysis] judge_model"


@click.command("analyze", cls=ListCommand)
@click.option("--output", "-o", type=PATH, metavar="DIR", help="Where to write.")
@picks
@click.option(
    "--compare",
    nargs=2,
    metavar="NEW OLD",
    help="Compare only these two profiles, in a separate folder. Default: the declared contrasts.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only N trials, drawn at random.")
@click.option("--seed", type=int, default=0, help="Seed of --limit.")
@click.option("--succeeded", is_flag=True, help="Only trials that passed.")
@click.option("--failed", is_flag=True, help="Only trials that ran and did not pass.")
@click.option("--list", "only_list", is_flag=True, help="List the trials that would be analysed, and stop.")
@click.option("--no-llm", is_flag=True, help="Ask no judge model, even if the file names one.")
@click.option("--llm-only", is_flag=True, help="Only ask the judge; do not rewrite the tables.")
@click.option("--model", metavar="M", help="Model of the judge. Default: judge_model of the file, else no judge.")
@click.option(
    "--rubric", multiple=True, metavar="NAME|FILE", help="Rubric that the judge uses. Default: all built-in rubrics."
)
@click.option(
    "--judge-budget", type=click.FloatRange(min=0), metavar="USD", help="Upper limit of what the judge may cost."
)
@click.option("--estimate-cost", is_flag=True, help="Estimate what the judge would cost, and stop. Calls no model.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors.")
@on_batches
@working
def analyze_command(selected: "SelectedBatches", quiet: bool, **chosen: Any) -> int:
    """Analyse what each trial did, compare the profiles, and write tables to the batch's analytics folder.

    Takes an experiment file, a batch folder, or any folder of Harbor jobs; without one, the newest batch.
    Trials that were analysed before are not read again. A model is called only when you name one. Exit code 3:
    some trials could not be analysed, and are named.
    """
    from terminalbench.analytics.judge.output import estimate_lines
    from terminalbench.analytics.selection import pick
    from terminalbench.cli.progress import AnalysisTeller
    from terminalbench.lab.analyze import estimate, request_of, run_request
    from terminalbench.report.analysis import listing, summary

    teller = AnalysisTeller(quiet=quiet)
    request = request_of(
        selected,
        _filter(chosen),
        compare=chosen["compare"],
        output=chosen["output"],
        judge=_judge(selected, chosen, teller),
        judge_only=chosen["llm_only"],
        progress=teller.progress,
    )
    if chosen["only_list"]:
        click.echo(listing(pick(request.batches, request.wanted)))
        return EXIT_OK
    if chosen["estimate_cost"]:
        click.echo("\n".join(estimate_lines(estimate(request))))
        return EXIT_OK
    done = run_request(request)
    result = done.result
    if not quiet:
        if said := summary(result, from_here(result.output), done.report, text_width()):
            click.echo(said)
        if request.judge is None and not chosen["no_llm"]:
            click.echo(_NO_MODEL)
    else:
        for line in result.missing:
            click.echo(f"missing: {line}", err=True)
    if result.judge_error is not None:
        raise result.judge_error
    nothing = request.judge_only and result.judged is not None and not result.judged.judged
    return EXIT_INCOMPLETE if result.incomplete or nothing else EXIT_OK


def _judge(selected: "SelectedBatches", chosen: dict[str, Any], teller: "AnalysisTeller") -> "JudgeAsk | None":
    from terminalbench.analytics.judge.request import JudgeAsk

    if chosen["no_llm"]:
        if chosen["llm_only"] or chosen["model"] or chosen["estimate_cost"] or chosen["rubric"]:
            raise click.UsageError("--no-llm cannot be combined with --llm-only, --model, --rubric or --estimate-cost")
        return None
    model = chosen["model"] or selected.judge_model
    if model is None:
        if any(chosen[name] for name in ("rubric", "llm_only", "estimate_cost")) or chosen["judge_budget"] is not None:
            raise UserError("no judge model is set", hint=_SET_MODEL)
        return None
    pairs = (chosen["compare"],) if chosen["compare"] is not None else ()
    return JudgeAsk(model, chosen["rubric"], chosen["judge_budget"], pairs, teller.judging)


def _filter(chosen: dict[str, Any]) -> "Filter":
    from terminalbench.analytics.selection import Filter

    if chosen["succeeded"] and chosen["failed"]:
        raise click.UsageError("--succeeded and --failed cannot be combined")
    only: Only | None = "succeeded" if chosen["succeeded"] else "failed" if chosen["failed"] else None
    return Filter(chosen["tasks"], chosen["profiles"], only, chosen["limit"], chosen["seed"])


_GROUPS = 15


@click.command("errors", cls=ListCommand)
@picks
@click.option(
    "--compare",
    nargs=2,
    metavar="A B",
    help="Contrast only these two profiles. Default: the declared contrasts, else each profile with the baseline.",
)
@click.option(
    "--vs",
    "versus",
    nargs=2,
    metavar="A B",
    help="Show why two profiles differ: the tasks that only one of them solves, with the deciding step of each.",
)
@click.option("--limit", type=click.IntRange(min=0), default=20, help="How many contrasts to show.")
@json_option
@on_batches
@working
def errors_command(
    selected: "SelectedBatches",
    tasks: tuple[str, ...],
    profiles: tuple[str, ...],
    compare: tuple[str, str] | None,
    versus: tuple[str, str] | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show why trials did not pass: failures in groups, and the step where a solving and a failing trial of a
    task diverge.

    Needs no model: classes follow rules (docs/analysis.md), with the steps of the trajectory that show it.
    """
    from terminalbench.analytics.error_groups import error_report
    from terminalbench.analytics.selection import Filter
    from terminalbench.cli.progress import AnalysisTeller

    if compare is not None and versus is not None:
        raise click.UsageError("--compare and --vs both name two profiles: give only one of these options")
    teller = AnalysisTeller(quiet=as_json)
    report = error_report(selected.batches, Filter(tasks, profiles), compare or versus, limit, teller.progress)
    if as_json:
        print_json(report)
    else:
        lines = _versus(report, *versus) if versus is not None else _report_lines(report)
        click.echo("\n".join(wrapped(map(printable, lines), text_width(), whole_words=False)))


def _report_lines(report: "ErrorReport") -> list[str]:

    head = f"{report.failed} of {plural(report.trials, 'trial')} did not pass"
    unfinished = plural(report.unfinished, "more is not finished", "more are not finished")
    other = [(report.unfinished, unfinished), (report.not_run, f"{report.not_run} more did not run")]
    lines = ["; ".join([head, *(said for count, said in other if count)])]
    lines += [f"note: {note}" for note in report.notes]
    if report.classes:
        head = "By failure class (docs/analysis.md); errors also say whose fault they are (docs/results.md)"
        lines += ["", head, *_groups(report.classes)]
        lines += ["", "By signature", *_groups(report.signatures)]
    if report.doubtful:
        lines += ["", "Doubtful results, whatever their outcome", *_doubtful(report.doubtful)]
    if report.contrasts:
        lines += ["", "Solved by one profile and not by the other"]
        lines += [line for contrast in report.contrasts for line in _contrast(contrast)]
    return lines


def _versus(report: "ErrorReport", a: str, b: str) -> list[str]:
    """Return why two profiles differ: what each solves that the other does not, by the class of the failure."""
    from terminalbench.analytics.error_groups import loss_groups

    lines = [
        f"{one} solves {plural(sum(found.a == one for found in report.contrasts), 'task')} that {other} never solves"
        for one, other in ((a, b), (b, a))
    ]
    for group in loss_groups(report.contrasts):
        lines += ["", f"{len(group.tasks):>5}  {group.loser}: {failure_words(group.what)} ({group.what})"]
        lines += [line for found in group.tasks for line in _contrast(found)]
    if not report.contrasts:
        lines.append("no task measured on both profiles is solved by only one of them")
    else:
        lines += ["", "to see them side by side in a browser: tbench view"]
    return lines


def _groups(groups: "list[FailureGroup]") -> list[str]:

    lines = []
    for group in groups[:_GROUPS]:
        people = f", {group.labelled} by a person" if group.labelled else ""
        fault = f" ({group.fault})" if group.fault is not None else ""
        lines.append(f"{group.count:>5}  {group.what}{fault}  {_by(group.profiles)}{people}")
        first = group.trials[0]
        steps = f", step {', '.join(map(str, first.steps[:6]))}" if first.steps else ""
        name = first.trial.rsplit("/", 1)[-1]
        lines.append(f"       e.g. {name}{steps}: {first.reason or first.failure_class}")
    rest = len(groups) - _GROUPS
    return [*lines, f"       and {plural(rest, 'further group')} (--json lists all)"] if rest > 0 else lines


def _doubtful(groups: "list[DoubtfulGroup]") -> list[str]:

    lines = []
    for group in groups:
        reason = f"{group.count:>5}  {doubt(group.reason)}  {_by(group.profiles)}"
        lines += [reason, f"       e.g. {group.trials[0]}"]
    return lines


def _by(profiles: "Mapping[str, int]") -> str:
    return f"[{', '.join(f'{profile} {count}' for profile, count in profiles.items())}]"


def _contrast(found: "OneSidedTask") -> list[str]:

    why = f" ({found.b_class})" if found.b_class else ""
    passed = f"{found.a} passed {found.a_passed} of {found.a_measured}"
    lines = ["", f"  {found.task.id}: {passed}, {found.b} 0 of {found.b_measured}{why}"]
    if found.divergence is None:
        return [*lines, f"    {found.why_none}"]
    fork = found.divergence
    moves = f"identical for {plural(fork.common, 'move')}, then" if fork.common else "they differ from the first move"
    lines.append(f"    {moves}")
    return [*lines, *_decision(found.a, fork.a), *_decision(found.b, fork.b)]


def _decision(profile: str, decision: "ForkDecision | None") -> list[str]:

    if decision is None:
        return [f"    {profile}: nothing more"]
    lines = [f"    {profile}, step {decision.step} ({decision.kind}): {decision.call}"]
    if decision.said:
        lines.append(f'      said "{decision.said}"')
    if decision.result:
        lines.append(f'      got  "{decision.result}"')
    return lines


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
    "--vs",
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
def compare_command(
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
    from terminalbench.cli.options import noted
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
