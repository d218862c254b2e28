"""What the commands on the gym share: the project, its gym, and the environment that is named."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from terminalbench.cli.options import root_option


def on_project(command: Callable[..., int | None]) -> Any:
    """`--root` becomes `root`, the folder of the project."""

    @wraps(command)
    def called(root: Path | None, **rest: Any) -> int | None:
        from terminalbench.experiments.project import project_root

        return command(root=project_root(Path.cwd() / "any.toml", root), **rest)

    return root_option(called)


def on_environment(command: Callable[..., int | None]) -> Any:
    """The argument ENVIRONMENT and `--root` become `environment` and `gym`."""

    @wraps(command)
    def called(name: str, root: Path, **rest: Any) -> int | None:
        from terminalbench.trainer.environments import open_environment
        from terminalbench.trainer.gym import Gym

        return command(environment=open_environment(name, root), gym=Gym(root), **rest)

    return click.argument("name", metavar="ENVIRONMENT")(on_project(called))
