"""Making a sandbox ready for the tests, inside it, by our own code: no program of the sandbox takes part."""

# ruff: noqa: PTH101, PTH103, PTH108, PTH112, PTH114, PTH115, PTH116, PTH118, PTH120, PTH208, S103

import contextlib
import errno
import functools
import os
import re
import shutil
from collections.abc import Callable
from typing import Any

from terminalbench.sandbox.engine import ids, views

_NAMED = 50
_OF_THE_MACHINE = (errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EIO)
_MOST_HOPS = 40
_PROCESS = re.compile(r"/proc/(?:self|thread-self|\d+)(?:/task/\d+)?(/fd)?")


def prepare(request: dict[str, Any]) -> dict[str, Any]:
    """Make the folders of the verifier anew, `logs` its user's alone (and `tests`, if they are to be `private`), and
    remove every link that leads into them.

    `programs` are put into folders of their own for it. What is in the way is a `problem`: all that is there is the
    agent's. That the machine has run out of something is not.
    """
    try:
        return _prepared(request)
    except (OSError, RecursionError) as error:
        if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
            raise
        return {"problem": str(error)}


def _prepared(request: dict[str, Any]) -> dict[str, Any]:
    tests, logs = request["tests"], request["logs"]
    account = ids.find_account(request["user"])
    found = [name for name in request["expected"] if os.path.lexists(name)]
    for folder in (logs, tests):
        _own_folder(os.path.dirname(folder), empty=False)
        _own_folder(folder, empty=True)
    os.chown(logs, account.uid, account.gid)
    os.chmod(logs, 0o755)
    if request["private"]:
        os.chown(tests, account.uid, account.gid)
        os.chmod(tests, 0o700)
    for path, text in request["programs"].items():
        _own_folder(os.path.dirname(path), empty=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o755)
        try:
            os.write(handle, text.encode())
        finally:
            os.close(handle)
    links = []
    for name in os.listdir("/"):
        if name not in views.SYSTEM:
            links += _links_into((tests, logs), f"/{name}", os.stat("/").st_dev)
    for link in links:  # only now: one may lead through another
        os.unlink(link)
    return {"found": found, "links": len(links), "named": [ascii(link)[1:-1][:200] for link in links[:_NAMED]]}


def _own_folder(path: str, *, empty: bool) -> None:
    """A real folder at `path`, whatever was there; of what it held nothing is left if it is to be `empty`."""
    if os.path.islink(path) or not os.path.isdir(path):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    elif empty:
        with os.scandir(path) as entries:
            for entry in list(entries):
                shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)
    os.makedirs(path, 0o755, exist_ok=True)


def _links_into(folders: tuple[str, ...], top: str, device: int) -> list[str]:
    """The links at and below `top` that lead into `folders`."""
    real = functools.cache(os.path.realpath)

    def leads_there(path: str) -> bool:
        try:
            end = f"{_end(path, real)}/"
        except OSError:  # it cannot be judged: it counts, and the rest of its folder is looked at all the same
            return os.path.islink(path)
        return _asks_process(path, real) or end.startswith(tuple(f"{folder}/" for folder in folders))

    if os.path.islink(top):
        return [top] if leads_there(top) else []
    found, waiting = [], [top]
    while waiting:
        path = waiting.pop()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            if os.lstat(path).st_dev != device or path in folders:
                continue
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.is_symlink():
                        found += [entry.path] if leads_there(entry.path) else []
                    elif entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    return found


def _asks_process(path: str, real: Callable[[str], str]) -> bool:
    """Return whether a link leads where the process is that follows it, or to what that reads: for tests, what they
    expect. Asked by one that has a number in the sandbox's /proc, or its `self` leads nowhere."""
    with contextlib.suppress(OSError):
        parts = os.path.join(os.path.dirname(path), os.readlink(path)).split("/")
        for number, part in enumerate(parts):
            above = real("/".join(parts[:number]) or "/") if number else ""
            found = _PROCESS.fullmatch(above)
            if found and (part not in ("1", "2", "") if found[1] else part in ("cwd", "root")):
                return True
            if above == "/dev" and part == "stdin":
                return True
    return False


def _end(path: str, real: Callable[[str], str]) -> str:
    """Return where a link leads, through others. Each folder on the way is asked for once: there may be very many
    links."""
    for _ in range(_MOST_HOPS):
        try:
            target = os.readlink(path)
        except OSError:
            break
        folder, name = os.path.split(os.path.join(os.path.dirname(path), target).rstrip("/"))
        if name in ("", ".", ".."):
            return os.path.realpath(path)
        path = f"{real(folder).rstrip('/')}/{name}"
    return path
