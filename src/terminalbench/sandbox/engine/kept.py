"""The work as the verifier was handed it, kept so that the same tests can run on it once more.

It is copied, not layered: so every call that the tests make on the work has the effect that it has anywhere.
"""

# ruff: noqa: PTH101, PTH102, PTH104, PTH112, PTH115, PTH208, PTH211

import contextlib
import os
import shutil
import stat

from terminalbench.sandbox.engine import views

MOST_BYTES = 128 << 20
"""The sandbox is lent room for three copies, beyond what its task may use; as memory where files are in memory."""
_MOST_FILES = 30_000
"""Small files cost more than bytes: to copy so many takes 3 s of CPU, to copy that many bytes half a second."""
HANDED, TESTED = "handed", "tested"


class _TooLarge(Exception):
    """The work is more than is kept."""


def keep(run_dir: str) -> bool:
    """Copy the work that the verifier's view has now; False where it is too large for that, or cannot be copied."""
    target = f"{run_dir}/s/{HANDED}"
    shutil.rmtree(target, ignore_errors=True)
    try:
        _copy(views.upper(run_dir, views.VERIFIER, 0), target)
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
        _copy(f"{run_dir}/s/{HANDED}", views.upper(run_dir, views.VERIFIER, 0))
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
    now = (views.upper(run_dir, views.VERIFIER, number), views.work(run_dir, views.VERIFIER, number))
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
