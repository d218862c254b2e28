"""`tbench gym split`."""

from typing import TYPE_CHECKING

import click

from terminalbench.cli.gym.options import on_environment
from terminalbench.cli.options import json_option
from terminalbench.cli.output import print_json

if TYPE_CHECKING:
    from terminalbench.trainer.environments import Environment
    from terminalbench.trainer.gym import Gym
    from terminalbench.trainer.split import Shares


def _shares(_context: click.Context, _option: click.Parameter, given: str) -> "Shares":
    from terminalbench.trainer.split import Shares

    try:
        train, dev, holdout = (float(part) for part in given.split("/"))
    except ValueError:
        raise click.BadParameter(f'must be three numbers, as 40/40/20; not "{given}"') from None
    if not min(train, dev, holdout) > 0 or max(train, dev, holdout) == float("inf"):
        raise click.BadParameter("each part needs a share above 0")
    return Shares(train, dev, holdout)


@click.command("split")
@on_environment
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Draws which family goes where.")
@click.option(
    "--shares",
    metavar="T/D/H",
    default="40/40/20",
    show_default=True,
    callback=_shares,
    help="How large train, dev and holdout shall be.",
)
@json_option
def command(environment: "Environment", gym: "Gym", seed: int, shares: "Shares", as_json: bool) -> None:
    """Give every family of an environment its part: train, dev or holdout.

    Families are never cut, and what has a part keeps it: tasks that are added later go to their family, new families to
    the part that lacks most. The parts hold for the whole project, in every environment.
    """
    from terminalbench.text.numbers import plural

    before = gym.split(environment)
    split = gym.make_split(environment, shares, seed)
    numbers = {"train": len(split.train), "dev": len(split.dev), "holdout": split.held_out}
    if as_json:
        print_json({"environment": environment.name, "split": split.digest, **numbers, "new": len(before.unassigned)})
        return
    sizes = ", ".join(f"{part} {plural(count, 'task')}" for part, count in numbers.items())
    click.echo(f"{environment.name}: {sizes} (split {split.digest})")
    if not before.unassigned:
        click.echo("every task had its part already")
