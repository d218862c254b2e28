"""Taking known secrets out of what a trial left on disk. Harbor does it for a part of them, at the end of a trial.

Harbor knows the variables it was told to give to an agent; one that an agent finds in Harbor's own environment it
does not know, and a Harbor that is killed leaves everything as it was.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from terminalbench.files import overwrite
from terminalbench.harbor.agent_files import read_plain
from terminalbench.llm.scrub import HIDDEN, secret_values

_LARGEST = 64 << 20
_LOOKED_AT = 8192


def hide_secrets(trial_dir: Path, failed: Callable[[str, Exception], None]) -> None:
    """Scrub the folder of a trial that has ended; `failed` is told when that cannot be done."""
    try:
        scrub_folder(trial_dir)
    except OSError as error:
        failed(f"secrets of {trial_dir.name}", error)


def scrub_folder(folder: Path) -> int:
    """Take the secrets this process knows out of every text file below a folder; how many files held one.

    A file that cannot be written keeps none of the others from it; it is raised at the end.
    """
    places = os.walk(folder)  # links to folders are not followed
    return _scrub_all(Path(place) / name for place, _, names in places for name in names)


def scrub_beside(folder: Path) -> int:
    """The same for the files that lie in a folder itself, those of its subfolders left alone."""
    return _scrub_all(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else 0


def _scrub_all(paths: Iterable[Path]) -> int:
    values = [value.encode() for value in secret_values()]
    found, problems = 0, []
    for path in paths if values else ():
        try:
            found += _scrub(path, values)
        except OSError as error:
            problems.append(error)
    if problems:
        raise problems[0]
    return found


def _scrub(path: Path, values: list[bytes]) -> bool:
    data = read_plain(path, _LARGEST)
    if data is None or b"\0" in data[:_LOOKED_AT] or not any(value in data for value in values):
        return False
    for value in values:
        data = data.replace(value, HIDDEN.encode())
    overwrite(path, data)
    return True
