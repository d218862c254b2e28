"""What is written in a sandbox, by view: the agent's own, and the one that the verifier gets.

Both lie over the same layers. From one to the other goes the work: everything that is not in `system`, which are the
folders that come from the layers alone, each view adding its own to them. So the verifier has the system as it was
before the agent came, and what the agent did to it stays behind, where it is listed (`changes`).

Loose files of the root folder are system too, but for those that the task itself names. What tells pytest how to run is
never work there: the root folder is above the tests', where it looks for that.
"""

# ruff: noqa: PTH101, PTH102, PTH104, PTH108, PTH112, PTH114, PTH208

import fnmatch
import os
import shutil
import stat

_PYTEST = (
    *("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "pyproject.toml", "tox.ini"),
    "setup.cfg",
)
RUNNERS = (
    *(*_PYTEST, "setup.py", "noxfile.py", "manage.py", "nose.cfg", ".noserc", ".coveragerc", "package.json"),
    *("jest.config.*", "vitest.config.*", "vite.config.*", "playwright.config.*", "karma.conf.*", ".mocharc*"),
    *("babel.config.*", ".babelrc*", "tsconfig*.json", "ava.config.*", ".rspec", "Rakefile", "Gemfile", "phpunit.xml*"),
    *("go.mod", "go.work", "Cargo.toml", ".cargo", "pom.xml", "build.gradle*", "settings.gradle*"),
)
"""Names by which test runners and builds find how to run; pytest looks from the folder of the tests upwards."""

AGENT, VERIFIER = "agent", "verifier"


def upper(run_dir: str, view: str, number: int) -> str:
    """The folder that takes what is written to the overlay `number` in `view`."""
    return f"{run_dir}/s/{view}{number}"


def work(run_dir: str, view: str, number: int) -> str:
    """The folder in which the kernel prepares what goes there."""
    return f"{run_dir}/s/{view}{number}.work"


def switch(
    run_dir: str, before: str, after: str, system: list[str], overlays: int, loose: list[str] | None = None
) -> None:
    """Hand the work that was written in the view `before` to `after`; the verifier's starts anew each time.

    `loose` are the names of files in the root folder that are work; None: all are. No process may run in either view.
    """
    if after == VERIFIER:
        for number in range(overlays):
            for folder in (upper(run_dir, after, number), work(run_dir, after, number)):
                shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(upper(run_dir, after, 0), 0o755)
    source, kept = upper(run_dir, before, 0), frozenset(system)
    hand_over(source, upper(run_dir, after, 0), kept | _not_work(source, loose))


def is_for_runners(name: str) -> bool:
    """Return whether a file of that name tells a test runner how to run."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in RUNNERS)


def _not_work(source: str, loose: list[str] | None) -> set[str]:
    """Return what lies in the root folder and is no work: files that the task does not name, and what runners look
    for."""
    found = set()
    for name in os.listdir(source):
        status = os.lstat(f"{source}/{name}")
        alone = not stat.S_ISDIR(status.st_mode) and not is_removal(status)
        if name in _PYTEST or (alone and loose is not None and name not in loose):
            found.add(name)
    return found


def hand_over(source: str, target: str, system: frozenset[str], below: str = "") -> None:
    """Move what is written in `source` to `target`, a removal too; what is in `system` stays.

    Of a folder that holds some of both, each part is looked at. Should the agent have put something else in its place,
    that stays as well.
    """
    for name in os.listdir(f"{source}/{below}"):
        path = f"{below}/{name}" if below else name
        old, new = f"{source}/{path}", f"{target}/{path}"
        if path in system:
            continue
        if not any(one.startswith(f"{path}/") for one in system):
            _clear(new)
            os.rename(old, new)
        elif stat.S_ISDIR((status := os.lstat(old)).st_mode):
            if not os.path.isdir(new):
                os.mkdir(new)
            os.chown(new, status.st_uid, status.st_gid)
            os.chmod(new, stat.S_IMODE(status.st_mode))
            hand_over(source, target, system, path)


def _clear(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except (IsADirectoryError, PermissionError):
        shutil.rmtree(path)


def is_removal(status: os.stat_result) -> bool:
    """Return whether this is how an overlay keeps in mind that a file of the layers was removed."""
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def clear_way(run_dir: str, view: str, targets: list[str]) -> None:
    """Remove what the agent put in the way of folders that are to be mounted: links, files."""
    for target in targets:
        path = upper(run_dir, view, 0)
        for part in target.strip("/").split("/")[:-1]:
            path = f"{path}/{part}"
            if os.path.lexists(path) and (os.path.islink(path) or not os.path.isdir(path)):
                os.unlink(path)
                break


def left_in(run_dir: str, names: list[str]) -> list[str]:
    """Return which of these names the agent wrote; a link in their path leads nowhere."""
    found = []
    for name in names:
        path, parts = upper(run_dir, AGENT, 0), name.strip("/").split("/")
        for part in parts:
            if os.path.islink(path):
                break
            path = f"{path}/{part}"
        else:
            if os.path.lexists(path) and not is_removal(os.lstat(path)):
                found.append(name)
    return found
