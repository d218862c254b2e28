"""`tbench check`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from terminalbench.cli.options import ListCommand, experiment_argument, json_option, picks, root_option
from terminalbench.cli.output import print_json
from terminalbench.errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK
from terminalbench.text.foreign import printable, shortened
from terminalbench.text.names import from_here
from terminalbench.text.numbers import some
from terminalbench.text.outcomes import word
from terminalbench.text.table import columns, wrapped

if TYPE_CHECKING:
    from terminalbench.lab.check import CheckReport, TaskCheck

_WIDTH = 80


@click.command("check", cls=ListCommand)
@experiment_argument
@picks
@click.option("--no-probe", is_flag=True, help="Install no agents and call no models.")
@click.option("--quarantine", is_flag=True, help="Exclude the failing tasks from later runs, and record why.")
@click.option("--release", is_flag=True, help="Also check quarantined tasks, and release those that pass.")
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
    installed in the sandbox is installed once, and each model is called once, for one token. A "-" means that
    there was nothing to run, install or call.
    """
    from terminalbench.cli.progress import RunTeller
    from terminalbench.experiments.config import load
    from terminalbench.experiments.planner import Selection
    from terminalbench.experiments.quarantine import quarantine_file
    from terminalbench.lab.check import check

    loaded = load(experiment, root)
    teller = RunTeller(quiet=as_json)
    teller.say("checking tasks, profiles and environment ...")
    wanted = {"probe": not no_probe, "quarantine": quarantine, "release": release}
    report = check(loaded, Selection(tasks, profiles), **wanted, progress=teller.line, preparing=teller.preparing)
    teller.done()
    if as_json:
        print_json({key: getattr(report, key) for key in ("ok", "tasks", "profiles", "folder", "interrupted")})
    else:
        click.echo(_text(report), nl=False)
    if report.quarantined is not None:
        click.echo(f"quarantined in {from_here(report.quarantined)}", err=True)
    if report.released:
        held = from_here(quarantine_file(experiment))
        click.echo(f"released from {held}: {', '.join(report.released)}", err=True)
    if report.still_held:
        click.echo(f"still quarantined: {', '.join(report.still_held)}", err=True)
    if report.interrupted:
        return EXIT_INTERRUPTED
    return EXIT_OK if report.ok else EXIT_FAILURE


def _text(report: "CheckReport") -> str:
    """The tables of tasks and profiles; each problem once below them, with the tasks that have it."""
    verdicts = [[word(t.oracle or "-"), word(t.nop or "-"), _verdict(t, report)] for t in report.tasks]
    taken = 4 + sum(max(map(len, column)) for column in zip(("oracle", "nop", ""), *verdicts, strict=True))
    names = shortened((t.task.id for t in report.tasks), _WIDTH - taken - 2)
    tasks = [["task", "oracle", "nop", ""]]
    tasks += [[names[t.task.id], *said] for t, said in zip(report.tasks, verdicts, strict=True)]
    profiles = [["profile", "install", "model", ""]]
    keys = shortened((p.profile for p in report.profiles), 40)
    for found in report.profiles:
        install = found.install if found.install in (None, "ok") else "failed"
        endpoint = found.endpoint if found.endpoint in (None, "ok") else "failed"
        verdict = "problem" if found.problem else "not checked" if report.interrupted else "ok"
        profiles.append([keys[found.profile], install or "-", endpoint or "-", verdict])
    parts = ["interrupted: only the finished checks are shown"] if report.interrupted else []
    parts += [columns(rows, left=range(4)) for rows in (tasks, profiles)]
    parts += [] if report.interrupted else _problems(report)
    parts += ["\n".join(wrapped([f"note: {printable(text)}"], _WIDTH)) for text in report.notes]
    return "\n\n".join([*parts, f"kept in {from_here(report.folder)}"]) + "\n"


def _verdict(task: "TaskCheck", report: "CheckReport") -> str:
    if report.interrupted and task.problem and not task.quarantined:
        return "not checked"
    return "quarantined" if task.quarantined else "problem" if task.problem else "ok"


def _problems(report: "CheckReport") -> list[str]:
    """Each problem once: whose it is, what it is, and of a task what its verifier said last."""
    found = [("task", task.problem, task.said, task.task.id) for task in report.tasks if task.problem]
    found += [("profile", profile.problem, (), profile.profile) for profile in report.profiles if profile.problem]
    owners: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for kind, problem, said, name in found:
        owners.setdefault((kind, problem, said), []).append(name)
    shown = []
    for (_, problem, said), names in owners.items():
        lines = wrapped([printable(f"{some(names)}: {problem}")], _WIDTH)
        lines += ["  the last words of the verifier", *(f"    {line[: _WIDTH - 4]}" for line in said)] if said else []
        shown.append("\n".join(lines))
    return shown
