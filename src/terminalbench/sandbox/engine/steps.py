"""The steps of a sandbox's start that a machine may refuse, each tried by itself in processes that end at once.

Run as a program it prints the refused ones as JSON. Nothing outlives it: what it mounts is in namespaces of its own.
"""

# ruff: noqa: PTH102, PTH112

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import NamedTuple

from terminalbench.sandbox.engine import ids, kernel

USER, MAP, MOUNT, OVERLAY, PROC = "user", "map", "mount", "overlay", "proc"
NAMESPACES = {"mnt": os.CLONE_NEWNS, "pid": os.CLONE_NEWPID, "net": os.CLONE_NEWNET, "ipc": os.CLONE_NEWIPC}
NAMESPACES |= {"uts": os.CLONE_NEWUTS}
"""The other namespaces of a sandbox, each a step, by their names in /proc/sys/user."""
_ROOMS = ("/tmp", "/var/tmp", "/run", "/mnt")  # noqa: S108  mounted over, out of sight of everything else


class StepRefusal(NamedTuple):
    """A step that failed: the error number of the kernel, or the signal that ended it; and what was said."""

    step: str
    errno: int | None
    text: str


type _Found = list[StepRefusal]


def main() -> None:
    """Print the refused steps."""
    sys.stdout.write(json.dumps(refusals()))


def refusals() -> list[StepRefusal]:
    """Every step that is refused here; those that need a refused one are not tried."""
    privileged = kernel.is_privileged()
    user = _apart(USER, lambda found: _done(found, USER, lambda: kernel.unshare(os.CLONE_NEWUSER)))
    if privileged:  # its files need no user namespace
        return [*user, *_apart(MOUNT, lambda found: _as_root(found, go_on=not user))]
    return user or _apart(MAP, _as_anybody)


def _as_root(found: _Found, *, go_on: bool) -> None:
    if _done(found, MOUNT, lambda: kernel.unshare(os.CLONE_NEWNS)) and _use_files(found, "") and go_on:
        _go_inside(found)


def _as_anybody(found: _Found) -> None:
    if _done(found, MAP, ids.enter_user_namespace) and _use_files(found, ",userxattr"):
        _go_inside(found)


def _use_files(found: _Found, private: str) -> bool:
    """Return whether mounts work, with overlays or without."""
    if not _done(found, MOUNT, _mount_room):
        return False
    _done(found, OVERLAY, lambda: _mount_overlay(private))
    return True


def _go_inside(found: _Found) -> None:
    """Enter the namespace of the sandbox's users, which is below that of the helper, and the others in it."""
    if not _done(found, USER, lambda: kernel.unshare(os.CLONE_NEWUSER)) or not _done(found, MAP, _map_root):
        return
    made = [_done(found, kind, lambda flag=flag: kernel.unshare(flag)) for kind, flag in NAMESPACES.items()]
    if all(made):
        found += _apart(PROC, lambda inner: _done(inner, PROC, lambda: kernel.mount("proc", _room(), "proc", 0)))


def _room() -> str:
    return next(folder for folder in _ROOMS if os.path.isdir(folder))


def _mount_room() -> None:
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_SLAVE)
    kernel.mount("tmpfs", _room(), "tmpfs", kernel.MS_NODEV, "size=1m,mode=755")


def _mount_overlay(private: str) -> None:
    room = _room()
    for name in ("lower", "upper", "work", "root"):
        os.mkdir(f"{room}/{name}")
    options = f"lowerdir={room}/lower,upperdir={room}/upper,workdir={room}/work{private}"
    kernel.mount("overlay", f"{room}/root", "overlay", kernel.MS_NODEV, options)


def _map_root() -> None:
    kernel.write("/proc/self/setgroups", "deny")
    for kind in ("uid_map", "gid_map"):
        kernel.write(f"/proc/self/{kind}", "0 0 1")


def _done(found: _Found, step: str, action: Callable[[], object]) -> bool:
    try:
        action()
    except OSError as error:
        found.append(StepRefusal(step, error.errno, str(error)))
        return False
    return True


def _apart(step: str, work: Callable[[_Found], object]) -> _Found:
    """Return what `work` finds in a process of its own; a filter of system calls may end that one instead of
    refusing."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        found: _Found = []
        try:
            work(found)
            os.write(write, json.dumps(found).encode())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(write)
    data = b""
    while chunk := os.read(read, 1 << 16):
        data += chunk
    os.close(read)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if ended:
        how = f"was ended by {signal.Signals(-ended).name}" if ended < 0 else f"ended with {ended}"
        return [StepRefusal(step, None, f"the process {how}")]
    return [StepRefusal(*one) for one in json.loads(data)]
