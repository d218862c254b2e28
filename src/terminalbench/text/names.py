"""The names of tasks and profiles as a person gives them, one or a glob; the badge of an oracle profile; and paths in
messages and in the commands that messages name.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from shlex import quote

from terminalbench.errors import UserError, did_you_mean


def is_glob(name: str) -> bool:
    """Return whether a name may stand for several."""
    return not set("*?[").isdisjoint(name)


def fits(name: str, wanted: str) -> bool:
    """Return whether a name is the one that is wanted, or one of those that a glob wants."""
    return name == wanted or (is_glob(wanted) and fnmatchcase(name, wanted))


def fits_one(name: str, wanted: Iterable[str]) -> bool:
    """Return whether one of several wants it."""
    return any(fits(name, one) for one in wanted)


def is_task(dataset: str, task_id: str, wanted: str) -> bool:
    """Return whether a task is wanted, as `id` or as `dataset/id`."""
    return fits(task_id, wanted) or fits(f"{dataset}/{task_id}", wanted)


def unknown(kind: str, name: str, known: Iterable[str], where: str) -> UserError:
    """The error for a name that nothing has, or a glob that nothing fits."""
    what = f'"{name}" fits no {kind}' if is_glob(name) else f'no {kind} is called "{name}"'
    return UserError(what, where=where, hint=did_you_mean(name.strip("*"), list(dict.fromkeys(known))))


ORACLE = "is an oracle (it sees the hidden verdict), so it is not compared"
"""What is said of it, after its name."""

BADGE = " (oracle)"


def named(profile: str, *, oracle: bool) -> str:
    """A profile in a table."""
    return f"{profile}{BADGE}" if oracle else profile


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
