"""`tbench gym show`."""

from typing import TYPE_CHECKING

import click

from terminalbench.cli.gym.options import on_environment
from terminalbench.cli.options import json_option
from terminalbench.cli.output import print_json, text_width

if TYPE_CHECKING:
    from terminalbench.trainer.environments import Environment
    from terminalbench.trainer.gym import Gym, GymLook


@click.command("show")
@on_environment
@click.option("--holdout", is_flag=True, help="Name the held-out tasks too: a look, which is recorded and counted.")
@click.option("--reason", metavar="TEXT", help="Why you look at the held-out tasks; needed with --holdout.")
@json_option
def command(environment: "Environment", gym: "Gym", holdout: bool, reason: str | None, as_json: bool) -> None:
    """Show an environment: which tasks teach, which measure, and every look at those that are held out."""
    from terminalbench.trainer.split import SplitPart

    if holdout != (reason is not None):
        raise click.UsageError("--holdout and --reason go together: each look at held-out tasks has its reason")
    look = gym.look(environment, by="tbench gym show", reason=reason) if reason is not None else None
    named = look.tasks if look is not None else ()
    seen = tuple(task for task in environment.tasks if f"{task.dataset}/{task.id}" in named)
    split, looks = gym.split(environment), gym.looks(environment)
    outside = gym.trials_outside(environment, environment.root / "results")
    parts = {
        SplitPart.TRAIN: split.train,
        SplitPart.DEV: split.dev,
        SplitPart.HOLDOUT: seen,
        "not split": split.unassigned,
    }
    if as_json:
        print_json(
            {
                "environment": environment.name,
                "what": environment.what,
                "tasks": len(environment.tasks),
                "split": split.digest,
                **{
                    str(part).replace(" ", "_"): [f"{t.dataset}/{t.id}" for t in tasks] for part, tasks in parts.items()
                },
                "held_out": split.held_out,
                "looks": looks,
                "trials_outside_looks": outside,
            }
        )
        return
    from terminalbench.text.numbers import plural
    from terminalbench.text.table import fitted
    from terminalbench.trainer.holdout_exposure import outside_line

    click.echo(f"{environment.name}: {environment.what}, {plural(len(environment.tasks), 'task')}")
    rows = [["task", "part", "family"]]
    rows += [[task.id, str(part), task.family or "-"] for part, tasks in parts.items() for task in tasks]
    if len(rows) > 1:
        click.echo(fitted(rows, (0, 1, 2), text_width()))
    if split.unassigned:
        click.echo(f"\nNot split yet: tbench gym split {environment.name}")
    elif not seen:
        click.echo(f"\nheld out and sealed: {plural(split.held_out, 'task')}")
    click.echo(_looks(looks))
    if (line := outside_line(outside)) is not None:
        click.echo(line)


def _looks(looks: "list[GymLook]") -> str:
    from terminalbench.text.foreign import printable
    from terminalbench.text.numbers import moment, plural

    lines = [f"looks at the holdout: {len(looks)}"]
    for look in looks:
        through = f"{plural(len(look.tasks), 'task')} of {look.environment}"
        lines.append(
            f"  {look.number}  {moment(look.time)}  {printable(look.by)}, {through}\n     {printable(look.reason)}"
        )
    return "\n".join(lines)
