"""Taking known secrets out of what a trial left on disk. Harbor does it for a part of them, at the end of a trial.

Harbor knows the variables it was told to give to an agent; one that an agent finds in Harbor's own environment it
does not know, and a Harbor that is killed leaves everything as it was.
"""

import os
from collections.abc import Callable, Container, Iterable
from pathlib import Path

from terminalbench.files import open_plain, overwrite, read_plain, write_bytes
from terminalbench.llm.scrub import HIDDEN, secret_values

_LARGEST = 64 << 20
_LOOKED_AT = 8192


def hide_secrets(trial_dir: Path, failed: Callable[[str, Exception], None]) -> None:
    """Scrub the folder of a trial that has ended; `failed` is told when that cannot be done."""
    try:
        scrub_folder(trial_dir)
    except (OSError, ValueError) as error:
        failed(f"secrets of {trial_dir.name}", error)


def scrub_folder(folder: Path) -> int:
    """Take the secrets this process knows out of every text file below a folder; how many files held one.

    Where one cannot be written, the others are scrubbed before the error is raised.
    """
    files = (Path(place) / name for place, _, names in os.walk(folder) for name in names)  # links are not followed
    return _scrub_all(files)


def scrub_beside(folder: Path, spared: Container[Path] = ()) -> int:
    """The same for the files that lie in a folder itself, those of its subfolders left alone."""
    if not folder.is_dir():
        return 0
    return _scrub_all(path for path in folder.iterdir() if path.is_file() and path not in spared)


def _scrub_all(files: Iterable[Path]) -> int:
    values = [value.encode(errors="surrogateescape") for value in secret_values()]
    found, problem = 0, None
    for path in files if values else ():
        try:
            found += _scrub(path, values)
        except OSError as error:
            problem = problem or error
    if problem is not None:
        raise problem
    return found


def _scrub(path: Path, values: list[bytes]) -> bool:
    data = read_plain(path, _LARGEST) if _is_text(path) else None
    if data is None or not any(value in data for value in values):
        return False
    for value in values:
        data = data.replace(value, HIDDEN.encode())
    try:
        overwrite(path, data)
    except PermissionError:  # of the container's root, or read-only: in a folder of ours it can be replaced
        write_bytes(path, data)
    return True


def _is_text(path: Path) -> bool:
    with open_plain(path) as stream:
        return stream is not None and b"\0" not in (stream.read(_LOOKED_AT) or b"")
