"""Paths in messages and in the commands that messages name."""

from pathlib import Path
from shlex import quote


def from_here(place: str | Path) -> str:
    """A path as a person in the current folder would name it; whole where it is elsewhere, or that folder is gone."""
    path = Path(place)
    try:
        here = Path.cwd()
    except OSError:
        return str(path)
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def typed(place: str | Path) -> str:
    """The same in a command to be typed: quoted where a shell would take it apart."""
    return quote(from_here(place))
