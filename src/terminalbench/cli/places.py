"""Which results root a command means."""

from pathlib import Path
from typing import Any

import click

from terminalbench.errors import UserError

results_option: Any = click.option(
    "--results",
    "results",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Results folder. Default: results/ of the project around the current folder.",
)


def results_root(results: Path | None) -> Path:
    """The results folder that was named, or that of the project around the current folder."""
    from terminalbench.experiments.config import project_root

    root = results or project_root(Path.cwd() / "any.toml", None) / "results"
    if not root.is_dir():
        raise UserError(
            "there are no results here", where=str(root), hint="tbench run makes some; or name the results folder"
        )
    return root.resolve()
