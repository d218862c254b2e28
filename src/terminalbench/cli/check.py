"""`tbench check`."""

from pathlib import Path

import click

from terminalbench.cli.options import (
    ListCommand,
    experiment_argument,
    json_option,
    profiles_option,
    root_option,
    tasks_option,
)
from terminalbench.errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK, UserError


@click.command("check", cls=ListCommand)
@experiment_argument
@tasks_option
@profiles_option
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
    from dataclasses import replace

    from terminalbench.cli.running import Teller
    from terminalbench.experiments.config import load
    from terminalbench.experiments.plan import Selection
    from terminalbench.files import encode_json
    from terminalbench.lab.check import as_document, check

    loaded = load(experiment, root)
    held = set(loaded.quarantine)
    if release:
        if not held:
            raise UserError("no task is quarantined", where=str(experiment))
        loaded = replace(loaded, quarantine={})
    teller = Teller(quiet=as_json)
    teller.say("checking tasks, profiles and environment ...")
    report = check(loaded, Selection(tasks, profiles), probe=not no_probe, progress=teller.line)
    teller.done()
    if as_json:
        click.echo(encode_json(as_document(report)).decode(), nl=False)
    else:
        _print(report)
    failing = [found for found in report.tasks if found.problem and not found.quarantined]
    if quarantine and failing and not report.interrupted:
        click.echo(f"quarantined in {_quarantine(experiment, failing)}", err=True)
    if release:
        _release(experiment, held, report)
    if report.interrupted:
        return EXIT_INTERRUPTED
    return EXIT_OK if report.ok else EXIT_FAILURE


def _print(report) -> None:
    from terminalbench.report.text import columns

    rows = [["task", "oracle", "nop", ""]]
    rows += [[t.task.id, t.oracle or "-", t.nop or "-", t.problem or "ok"] for t in report.tasks]
    click.echo(columns(rows, left=range(4)))
    click.echo()
    rows = [["profile", "install", "model", ""]]
    for found in report.profiles:
        install = found.install if found.install in (None, "ok") else "failed"
        endpoint = found.endpoint if found.endpoint in (None, "ok") else "failed"
        rows.append([found.profile, install or "-", endpoint or "-", found.problem or "ok"])
    click.echo(columns(rows, left=range(4)))
    click.echo(f"\nkept in {report.folder}")


def _release(experiment: Path, held: set[tuple[str, str]], report) -> None:
    """Take what is in order again out of the quarantine, and say what stays in it."""
    from terminalbench.experiments.quarantine import quarantine_file
    from terminalbench.experiments.quarantine import release as take_out

    again = [found for found in report.tasks if (found.task.dataset, found.task.id) in held]
    fine = [found.task for found in again if not found.problem]
    if fine:
        take_out(experiment, [(task.dataset, task.id) for task in fine])
        click.echo(f"released from {quarantine_file(experiment)}: {', '.join(task.id for task in fine)}", err=True)
    still = [found.task.id for found in again if found.problem]
    if still:
        click.echo(f"still quarantined: {', '.join(still)}", err=True)


def _quarantine(experiment: Path, failing: list) -> Path:
    from datetime import UTC, datetime

    from terminalbench.experiments.quarantine import QuarantinedTask, write_quarantine

    today = datetime.now(UTC).date().isoformat()
    return write_quarantine(experiment, [QuarantinedTask(f.task.id, f.task.dataset, f.problem, today) for f in failing])
