"""`tbench check`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from terminalbench.cli.options import ListCommand, experiment_argument, json_option, picks, root_option
from terminalbench.cli.output import print_json
from terminalbench.errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK

if TYPE_CHECKING:
    from terminalbench.lab.check import CheckReport

_WIDTH = 80


@click.command("check", cls=ListCommand)
@experiment_argument
@picks
@click.option("--no-probe", is_flag=True, help="Do not install agents and do not call models.")
@click.option("--quarantine", is_flag=True, help="Leave the failing tasks out of later runs, with the reason found.")
@click.option(
    "--release", is_flag=True, help="Check quarantined tasks too, and take out those that are in order again."
)
@json_option
@root_option
def command(
    experiment: Path,
    tasks: tuple[str, ...],
    profiles: tuple[str, ...],
    no_probe: bool,
    quarantine: bool,
    release: bool,
    as_json: bool,
    root: Path | None,
) -> int:
    """Prove an experiment before a run, in its exact environment.

    Each task must be solved by its own solution (oracle) and not by doing nothing (nop). Each agent that is
    installed in the sandbox is installed once, and each model is called once, for one token.
    """
    from terminalbench.cli.progress import RunTeller
    from terminalbench.experiments.config import load
    from terminalbench.experiments.plan import Selection
    from terminalbench.experiments.quarantine import quarantine_file
    from terminalbench.lab.check import check

    loaded = load(experiment, root)
    teller = RunTeller(quiet=as_json)
    teller.say("checking tasks, profiles and environment ...")
    report = check(
        loaded,
        Selection(tasks, profiles),
        probe=not no_probe,
        quarantine=quarantine,
        release=release,
        progress=teller.line,
    )
    teller.done()
    if as_json:
        print_json({key: getattr(report, key) for key in ("ok", "tasks", "profiles", "folder", "interrupted")})
    else:
        click.echo(_text(report), nl=False)
    if report.quarantined is not None:
        click.echo(f"quarantined in {report.quarantined}", err=True)
    if report.released:
        click.echo(f"released from {quarantine_file(experiment)}: {', '.join(report.released)}", err=True)
    if report.still_held:
        click.echo(f"still quarantined: {', '.join(report.still_held)}", err=True)
    if report.interrupted:
        return EXIT_INTERRUPTED
    return EXIT_OK if report.ok else EXIT_FAILURE


def _text(report: "CheckReport") -> str:
    from terminalbench.text.foreign import shortened
    from terminalbench.text.table import columns

    verdicts = [[t.oracle or "-", t.nop or "-"] for t in report.tasks]
    taken = 4 + sum(max(map(len, column)) for column in zip(("oracle", "nop"), *verdicts, strict=True))
    names = shortened((t.task.id for t in report.tasks), _WIDTH - taken - len("  ok"))
    tasks = [["task", "oracle", "nop", ""]]
    tasks += [[names[t.task.id], *said, t.problem or "ok"] for t, said in zip(report.tasks, verdicts, strict=True)]
    profiles = [["profile", "install", "model", ""]]
    for found in report.profiles:
        install = found.install if found.install in (None, "ok") else "failed"
        endpoint = found.endpoint if found.endpoint in (None, "ok") else "failed"
        profiles.append([found.profile, install or "-", endpoint or "-", found.problem or "ok"])
    tables = [columns(rows, left=range(4)) for rows in (tasks, profiles)]
    return "\n\n".join([*tables, *(f"note: {text}" for text in report.notes), f"kept in {report.folder}"]) + "\n"
