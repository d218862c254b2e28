"""What the commands on a training share: its plan, and what is kept of it."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from terminalbench.cli.options import PATH, root_option

plan_argument: Any = click.argument("file", type=PATH, metavar="PLAN.toml")
reason_option: Any = click.option("--reason", required=True, metavar="TEXT", help="Why; it is kept with the lineage.")


def on_training(command: Callable[..., int | None]) -> Any:
    """The argument PLAN.toml and `--root` become `training`."""

    @wraps(command)
    def called(file: Path, root: Path | None, **rest: Any) -> int | None:
        from terminalbench.trainer.training import open_training

        return command(training=open_training(file, root), **rest)

    return plan_argument(root_option(called))
