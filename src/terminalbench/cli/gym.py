"""`tbench trainer gym`, also known as `tbench gym`."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from terminalbench.cli.commands import group
from terminalbench.cli.options import json_option, root_option
from terminalbench.cli.output import print_json, text_width
from terminalbench.experiments.project import current_project
from terminalbench.text.foreign import printable
from terminalbench.text.numbers import moment, plural
from terminalbench.text.table import fitted

if TYPE_CHECKING:
    from terminalbench.trainer.environments import Environment
    from terminalbench.trainer.gym import Gym, Shares


@group("gym", __name__)
def command() -> None:
    """The environments that profiles are trained on, and their split into train, dev and holdout."""


def on_environment(command: Callable[..., int | None]) -> Any:
    """The argument ENVIRONMENT and `--root` become `environment` and `gym`."""

    @wraps(command)
    def called(name: str, root: Path | None, **rest: Any) -> int | None:
        from terminalbench.trainer.environments import open_environment
        from terminalbench.trainer.gym import Gym

        project = current_project(root)
        return command(environment=open_environment(name, project), gym=Gym(project), **rest)

    return click.argument("name", metavar="ENVIRONMENT")(root_option(called))


@click.command("list")
@root_option
@json_option
def list_command(root: Path | None, as_json: bool) -> None:
    """List the environments of the project: shipped suites, SWE-Bench Pro if its tasks exist, experiment files.

    A folder of Harbor tasks and any other suite file is named by its path. Held-out tasks are counted, and so are the
    looks at them.
    """
    from terminalbench.trainer.environments import list_environments
    from terminalbench.trainer.gym import Gym, unit_of

    project = current_project(root)
    gym = Gym(project)
    rows = [["environment", "tasks", "families", "train", "dev", "holdout", "looks", "what"]]
    told = []
    for listed in list_environments(project):
        environment = listed.environment
        if environment is None:
            told.append({"environment": listed.name, "problem": listed.problem})
            rows.append([listed.name, *["-"] * 6, f"not usable: {listed.problem}"])
            continue
        split, looks = gym.split(environment), len(gym.looks(environment))
        numbers = {
            "tasks": len(environment.tasks),
            "families": len({unit_of(task) for task in environment.tasks}),
            "train": len(split.train),
            "dev": len(split.dev),
            "holdout": split.held_out,
            "looks": looks,
        }
        told.append({"environment": environment.name, "what": environment.what, **numbers})
        rows.append([environment.name, *map(str, numbers.values()), environment.what])
    if as_json:
        print_json(told)
    else:
        click.echo(fitted(rows, (0, 7), text_width()))


@click.command("show")
@on_environment
@click.option("--holdout", is_flag=True, help="Also name the held-out tasks; this look is recorded and counted.")
@click.option("--reason", metavar="TEXT", help="Reason for looking at the held-out tasks; required with --holdout.")
@json_option
def show_command(environment: "Environment", gym: "Gym", holdout: bool, reason: str | None, as_json: bool) -> None:
    """Show an environment: its train and dev tasks, and every look at its held-out tasks."""
    if holdout != (reason is not None):
        raise click.UsageError("give --holdout and --reason together: each look at held-out tasks is recorded with one")
    look = gym.look(environment, by="tbench trainer gym show", reason=reason) if reason is not None else None
    named = look.tasks if look is not None else ()
    seen = tuple(task for task in environment.tasks if task.name in named)
    split, looks = gym.split(environment), gym.looks(environment)
    outside = gym.trials_outside(environment, environment.root / "results")
    parts = {"train": split.train, "dev": split.dev, "holdout": seen, "not split": split.unassigned}
    if as_json:
        about = {"environment": environment.name, "what": environment.what, "tasks": len(environment.tasks)}
        named = {part.replace(" ", "_"): [t.name for t in held] for part, held in parts.items()}
        seals = {"held_out": split.held_out, "looks": looks, "trials_outside_looks": outside}
        print_json({**about, "split": split.digest, **named, **seals})
        return
    from terminalbench.trainer.gym import outside_line

    click.echo(f"{environment.name}: {environment.what}, {plural(len(environment.tasks), 'task')}")
    rows = [["task", "part", "family"]]
    rows += [[task.id, part, task.family or "-"] for part, tasks in parts.items() for task in tasks]
    if len(rows) > 1:
        click.echo(fitted(rows, (0, 1, 2), text_width()))
    if split.unassigned:
        click.echo(f"\nNot split yet: tbench trainer gym split {environment.name}")
    elif not seen:
        click.echo(f"\nheld out and sealed: {plural(split.held_out, 'task')}")
    click.echo(f"looks at the holdout: {len(looks)}")
    for look in looks:
        through = f"{plural(len(look.tasks), 'task')} of {look.environment}"
        click.echo(f"  {look.number}  {moment(look.time)}  {printable(look.by)}, {through}")
        click.echo(f"     {printable(look.reason)}")
    if (line := outside_line(outside)) is not None:
        click.echo(line)


def _shares(_context: click.Context, _option: click.Parameter, given: str) -> "Shares":
    from terminalbench.trainer.gym import Shares

    try:
        train, dev, holdout = (float(part) for part in given.split("/"))
    except ValueError:
        raise click.BadParameter(f'must be three numbers such as 40/40/20, not "{given}"') from None
    if not min(train, dev, holdout) > 0 or max(train, dev, holdout) == float("inf"):
        raise click.BadParameter("each part needs a share above 0")
    return Shares(train, dev, holdout)


@click.command("split")
@on_environment
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of the random split of families.")
@click.option(
    "--shares",
    metavar="T/D/H",
    default="40/40/20",
    callback=_shares,
    help="Shares of train, dev and holdout, such as 40/40/20.",
)
@json_option
def split_command(environment: "Environment", gym: "Gym", seed: int, shares: "Shares", as_json: bool) -> None:
    """Assign every family of an environment to train, dev or holdout.

    A family is never divided, and its part never changes: tasks added later follow their family, and new
    families go to the part that is furthest below its share. The parts hold for the whole project, in every
    environment.
    """
    before = gym.split(environment)
    split = gym.make_split(environment, shares, seed)
    numbers = {"train": len(split.train), "dev": len(split.dev), "holdout": split.held_out}
    if as_json:
        print_json({"environment": environment.name, "split": split.digest, **numbers, "new": len(before.unassigned)})
        return
    sizes = ", ".join(f"{part} {plural(count, 'task')}" for part, count in numbers.items())
    click.echo(f"{environment.name}: {sizes} (split {split.digest})")
    if not before.unassigned:
        click.echo("nothing to do: every task already belongs to a part")
