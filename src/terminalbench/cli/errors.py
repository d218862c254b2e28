"""`tbench errors`."""

from typing import TYPE_CHECKING

import click

from terminalbench.cli.line import working
from terminalbench.cli.options import ListCommand, json_option, picks
from terminalbench.cli.output import print_json, text_width
from terminalbench.cli.select import on_batches

if TYPE_CHECKING:
    from terminalbench.analytics.divergence import ForkDecision
    from terminalbench.analytics.error_groups import DoubtfulGroup, ErrorReport, FailureGroup, OneSidedTask
    from terminalbench.lab.select import SelectedBatches

_GROUPS = 15


@click.command("errors", cls=ListCommand)
@picks
@click.option(
    "--compare",
    nargs=2,
    metavar="A B",
    help="Contrast only these two profiles. Default: as declared, else each with the baseline.",
)
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Contrasts to show.")
@json_option
@on_batches
@working
def command(
    selected: "SelectedBatches",
    tasks: tuple[str, ...],
    profiles: tuple[str, ...],
    compare: tuple[str, str] | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show why trials did not pass: in groups, and where one that solves a task parts ways with one that does not.

    Needs no model: classes follow rules (docs/analysis.md), with the steps of the trajectory that show it.
    """
    from terminalbench.analytics.error_groups import error_report
    from terminalbench.analytics.selection import Filter
    from terminalbench.cli.progress import AnalysisTeller

    teller = AnalysisTeller(quiet=as_json)
    report = error_report(selected.batches, Filter(tasks, profiles), compare, limit, teller.progress)
    if as_json:
        print_json(report)
    else:
        click.echo(_text(report), nl=False)


def _text(report: "ErrorReport") -> str:
    from terminalbench.text.foreign import printable
    from terminalbench.text.numbers import plural

    head = f"{report.failed} of {plural(report.trials, 'trial')} did not pass"
    other = [(report.unfinished, "are not finished"), (report.not_run, "did not run")]
    lines = ["; ".join([head, *(f"{count} more {what}" for count, what in other if count)])]
    lines += [f"note: {printable(note)}" for note in report.notes]
    if report.classes:
        lines += [
            "",
            "By class (docs/analysis.md), errors with whose fault they are (docs/results.md)",
            *_groups(report.classes),
        ]
        lines += ["", "By signature", *_groups(report.signatures)]
    if report.doubtful:
        lines += ["", "Doubtful results, whatever their outcome", *_doubtful(report.doubtful)]
    if report.contrasts:
        lines += ["", "Solved by one profile and not by the other"]
        lines += [line for contrast in report.contrasts for line in _contrast(contrast)]
    return "\n".join(wrapped for line in lines for wrapped in _wrapped(line)) + "\n"


def _wrapped(line: str) -> list[str]:
    """A line as several that fit the terminal, the further ones four columns deeper than the first."""
    from textwrap import wrap

    deeper = " " * (len(line) - len(line.lstrip(" 0123456789")) + 4)
    return wrap(line, text_width(), subsequent_indent=deeper, break_on_hyphens=False) or [""]


def _groups(groups: "list[FailureGroup]") -> list[str]:
    from terminalbench.text.foreign import printable
    from terminalbench.text.numbers import plural

    lines = []
    for group in groups[:_GROUPS]:
        by = ", ".join(f"{profile} {count}" for profile, count in group.profiles.items())
        people = f", {group.labelled} by a person" if group.labelled else ""
        fault = f" ({group.fault})" if group.fault is not None else ""
        lines.append(f"{group.count:>5}  {printable(group.what)}{fault}  [{by}]{people}")
        first = group.trials[0]
        steps = f", step {', '.join(map(str, first.steps[:6]))}" if first.steps else ""
        lines.append(
            f"       e.g. {first.trial.rsplit('/', 1)[-1]}{steps}: {printable(first.reason or first.failure_class)}"
        )
    rest = len(groups) - _GROUPS
    return [*lines, f"       and {plural(rest, 'further group')} (--json has all)"] if rest > 0 else lines


def _doubtful(groups: "list[DoubtfulGroup]") -> list[str]:
    from terminalbench.text.doubts import doubt
    from terminalbench.text.foreign import printable

    lines = []
    for group in groups:
        by = ", ".join(f"{profile} {count}" for profile, count in group.profiles.items())
        lines += [f"{group.count:>5}  {printable(doubt(group.reason))}  [{by}]", f"       e.g. {group.trials[0]}"]
    return lines


def _contrast(found: "OneSidedTask") -> list[str]:
    why = f" ({found.b_class})" if found.b_class else ""
    lines = [
        "",
        f"  {found.task.id}: {found.a} passed {found.a_passed} of {found.a_measured}, "
        f"{found.b} 0 of {found.b_measured}{why}",
    ]
    if found.divergence is None:
        return [*lines, f"    {found.why_none}"]
    fork = found.divergence
    lines.append(f"    same for {fork.common} moves, then")
    return [*lines, *_decision(found.a, fork.a), *_decision(found.b, fork.b)]


def _decision(profile: str, decision: "ForkDecision | None") -> list[str]:
    from terminalbench.text.foreign import printable

    if decision is None:
        return [f"    {profile}: nothing more"]
    lines = [f"    {profile}, step {decision.step} ({decision.kind}): {printable(decision.call)}"]
    if decision.said:
        lines.append(f'      said "{printable(decision.said)}"')
    if decision.result:
        lines.append(f'      got  "{printable(decision.result)}"')
    return lines
