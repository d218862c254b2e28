"""`tbench ctl`."""

import re
import sys
from pathlib import Path

import click

from terminalbench.cli.options import PATH, batch_option, results_option, root_option
from terminalbench.cli.select import BatchChoice
from terminalbench.errors import UserError

_ACTIONS = ("pause", "resume", "set", "requeue", "cancel")
_BY_HAND = "by hand, without a reason"
_PARALLEL = re.compile(r"parallel=(\d{1,6})")


@click.command("ctl")
@click.argument("action", type=click.Choice(_ACTIONS))
@click.argument("targets", nargs=-1, metavar="[parallel=N] [PROFILE|TRIAL]...")
@click.option("--reason", help="Why. It is recorded with the change. May be left out on a terminal only.")
@click.option(
    "--in",
    "target",
    type=PATH,
    metavar="EXPERIMENT.toml|BATCH",
    help="Which batch. Default: the one that runs, in this project before elsewhere.",
)
@batch_option
@click.option("--gate", type=PATH, metavar="FILE", help="All batches that share this gate.")
@results_option
@root_option
def command(
    action: str,
    targets: tuple[str, ...],
    reason: str | None,
    target: Path | None,
    batch: int | None,
    gate: Path | None,
    results: Path | None,
    root: Path | None,
) -> None:
    """Steer a live run: pause and resume profiles, run fewer or more trials at once, cancel or requeue.

    \b
    tbench ctl pause haiku --reason "quota"      no new trial of the profile starts
    tbench ctl resume haiku --reason "new day"   they start again; without a name: all profiles
    tbench ctl set parallel=8 --reason "quota"   so many trials at once in each profile, or in those named
    tbench ctl requeue fix-git__a1b --reason x   end a running trial and run it again
    tbench ctl cancel sonnet --reason "wrong"    end running trials, start no others

    cancel and requeue wait until the trials have ended, and say how. A trial is cancelled twice, 30 s apart; when it
    ignores both, its Harbor process is ended and the other trials of that process run in another.
    With --gate it is said to all batches that share that gate, waited for in each of them, and said to those that
    start later.
    tbench resume runs later what was cancelled. Every change is an event of the batch, with its reason.
    """
    from terminalbench.cli.select import batch_to_steer
    from terminalbench.runner.control import ControlOrder, await_end, give, give_to_all

    value = None
    if action == "set":
        match = _PARALLEL.fullmatch(targets[0]) if targets else None
        if match is None:
            raise UserError("tbench ctl set: the only thing to set is parallel=N, as in: tbench ctl set parallel=1")
        value, targets = int(match[1]), targets[1:]
    if reason is None:
        if not sys.stdin.isatty():
            raise click.UsageError(
                "Missing option '--reason': say why, it is recorded (on a terminal it may be left out)"
            )
        reason = _BY_HAND
    if not reason.strip():
        raise UserError("--reason is empty; say why, it is recorded")
    order = ControlOrder(action, targets, reason.strip(), value)
    if gate is not None:
        if target is not None or batch is not None:
            raise UserError("--gate is for all batches that share it; --in and --batch do not go with it")
        place, given = gate, give_to_all(gate.absolute(), order)
    else:
        found = batch_to_steer(BatchChoice(target, batch, results, root))
        place, given = found.folder, give(found, order)
    names = ", ".join("all profiles" if name == "*" else name for name in given.targets)
    click.echo(f"{action}{f' parallel={value}' if value else ''}: {names} ({place})")
    for trial, outcome in await_end(given):
        click.echo(f"{trial} has ended: {outcome}" if outcome else f"{trial} has not ended yet: tbench status shows it")
