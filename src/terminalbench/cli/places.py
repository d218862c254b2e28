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
    from terminalbench.index.scan import root_around

    root = results or project_root(Path.cwd() / "any.toml", None) / "results"
    if not root.is_dir():
        beside = Path("experiments") / "results"  # where those of a folder land that is no project
        hint = f"--results {beside}" if beside.is_dir() else "tbench run makes some; or name the results folder"
        raise UserError("there are no results here", where=str(root), hint=hint)
    return root_around(root.resolve())


def from_here(place: str | Path) -> str:
    """A path as a person in the current folder would type it."""
    path = Path(place)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
