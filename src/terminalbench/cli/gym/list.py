"""`tbench gym list`."""

from pathlib import Path

import click

from terminalbench.cli.gym.options import on_project
from terminalbench.cli.options import json_option
from terminalbench.cli.output import print_json, text_width


@click.command("list")
@on_project
@json_option
def command(root: Path, as_json: bool) -> None:
    """List the environments of the project: shipped suites, SWE-Bench Pro where it was made, experiment files.

    A folder of Harbor tasks and any other suite file is named by its path. Held-out tasks are counted, and so are the
    looks at them.
    """
    from terminalbench.text.table import fitted
    from terminalbench.trainer.environments import list_environments
    from terminalbench.trainer.gym import Gym
    from terminalbench.trainer.split import unit_of

    gym = Gym(root)
    rows = [["environment", "tasks", "families", "train", "dev", "holdout", "looks", "what"]]
    told = []
    for listed in list_environments(root):
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
