"""What is written in a sandbox, by view: the agent's own, and the one that the verifier gets.

Both lie over the same layers. From one to the other goes the work: everything that is not in `system`, which are the
folders that come from the layers alone, each view adding its own to them. So the verifier has the system as it was
before the agent came, and what the agent did to it stays behind, where it is listed (`changes`).

Loose files of the root folder are system too, but for those that the task itself names. What tells pytest how to run is
never work there: the root folder is above the tests', where it looks for that.

The work as the verifier was handed it can be kept, so that the same tests can run on it once more. It is copied, not
layered: so every call that the tests make on the work has the effect that it has anywhere.
"""

# ruff: noqa: PTH101, PTH102, PTH104, PTH108, PTH112, PTH114, PTH115, PTH208, PTH211

import contextlib
import fnmatch
import os
import shutil
import stat

OURS = ".tbench"
"""Where the tests have their homes, and the program that runs others for them."""
SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "boot", "dev", "proc", "sys", "run", OURS)
"""The folders that are the system in every sandbox."""
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

MOST_BYTES = 128 << 20
"""The sandbox is lent room for three copies, beyond what its task may use; as memory where files are in memory."""
_MOST_FILES = 30_000
"""Small files cost more than bytes: to copy so many takes 3 s of CPU, to copy that many bytes half a second."""
HANDED, TESTED = "handed", "tested"


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


class _TooLarge(Exception):
    """The work is more than is kept."""


def keep(run_dir: str) -> bool:
    """Copy the work that the verifier's view has now; False where it is too large for that, or cannot be copied."""
    target = f"{run_dir}/s/{HANDED}"
    shutil.rmtree(target, ignore_errors=True)
    try:
        _copy(upper(run_dir, VERIFIER, 0), target)
    except (OSError, _TooLarge):
        shutil.rmtree(target, ignore_errors=True)
        return False
    return True


def as_handed(run_dir: str, overlays: int) -> bool:
    """Give the verifier's view the work as it was kept; what the tests had made of it is laid aside, the first time.

    False where there is no room for that: then the view is as the tests left it. No process may run in the view.
    """
    first = not os.path.isdir(f"{run_dir}/s/{TESTED}0")
    for number in range(overlays):
        for now, aside in _places(run_dir, number):
            if first and os.path.isdir(now):
                os.rename(now, aside)
            shutil.rmtree(now, ignore_errors=True)
    try:
        _copy(f"{run_dir}/s/{HANDED}", upper(run_dir, VERIFIER, 0))
    except (OSError, _TooLarge):
        as_tested(run_dir, overlays)
        return False
    return True


def as_tested(run_dir: str, overlays: int) -> None:
    """Give the verifier's view back what the first tests had made of the work."""
    for number in range(overlays):
        for now, aside in _places(run_dir, number):
            shutil.rmtree(now, ignore_errors=True)
            if os.path.isdir(aside):
                os.rename(aside, now)


def _places(run_dir: str, number: int) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return where what is written to an overlay is, and where it is laid aside; the same of the kernel's own
    folder."""
    now = (upper(run_dir, VERIFIER, number), work(run_dir, VERIFIER, number))
    return (now[0], f"{run_dir}/s/{TESTED}{number}"), (now[1], f"{run_dir}/s/{TESTED}{number}.work")


def _copy(source: str, target: str) -> None:
    """Copy a tree as an overlay keeps it: with owners, modes, times, attributes, hard links and removals."""
    linked: dict[int, str] = {}
    pending, folders, count, size = [""], list[tuple[str, os.stat_result]](), 0, 0
    while pending:
        below = pending.pop()
        status = os.lstat(f"{source}{below}")
        os.mkdir(f"{target}{below}", 0o700)
        folders.append((below, status))
        for name in os.listdir(f"{source}{below}"):
            path = f"{below}/{name}"
            status = os.lstat(f"{source}{path}")
            count, size = count + 1, size + (status.st_size if stat.S_ISREG(status.st_mode) else 0)
            if count > _MOST_FILES or size > MOST_BYTES:
                raise _TooLarge
            if stat.S_ISDIR(status.st_mode):
                pending.append(path)
            elif status.st_ino in linked:
                os.link(f"{target}{linked[status.st_ino]}", f"{target}{path}", follow_symlinks=False)
            else:
                _copy_file(f"{source}{path}", f"{target}{path}", status)
                if status.st_nlink > 1:
                    linked[status.st_ino] = path
    for path, status in reversed(folders):  # what is made in a folder changes its time
        _describe(f"{source}{path}", f"{target}{path}", status)


def _copy_file(source: str, target: str, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(source), target)
    elif stat.S_ISREG(status.st_mode):
        shutil.copyfile(source, target, follow_symlinks=False)
    elif not stat.S_ISSOCK(status.st_mode):  # a removal, or a pipe
        os.mknod(target, status.st_mode, status.st_rdev)
    else:
        return
    _describe(source, target, status)


def _describe(source: str, target: str, status: os.stat_result) -> None:
    os.chown(target, status.st_uid, status.st_gid, follow_symlinks=False)
    if not stat.S_ISLNK(status.st_mode):
        os.chmod(target, stat.S_IMODE(status.st_mode))
    for name in os.listxattr(source, follow_symlinks=False):
        with contextlib.suppress(OSError):  # some are the kernel's own
            os.setxattr(target, name, os.getxattr(source, name, follow_symlinks=False), follow_symlinks=False)
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns), follow_symlinks=False)
