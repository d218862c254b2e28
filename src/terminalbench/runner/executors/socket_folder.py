"""The folder where the loaded process listens: one in /tmp with its socket, named after the process that made it.

The folder goes with its owner. What is left when both were killed at once is taken away by the next one that is made:
only a folder of this user, whose owner is gone, whose socket nobody listens on, and that holds nothing else.
"""

import contextlib
import os
import re
import socket
import stat
import tempfile
from pathlib import Path

from terminalbench.locks import start_ticks

_PREFIX = "tbench-loaded"
_NAME = re.compile(rf"{_PREFIX}-(\d+)-(\d+)-\w+")
_SOCKET = "socket"


def make_socket_folder() -> Path:
    """A folder of this user alone, with a short path, as a socket needs; those that dead processes left are removed."""
    sweep()
    pid = os.getpid()
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}-{pid}-{start_ticks(pid) or 0}-"))


def socket_in(folder: Path) -> Path:
    """The socket of a folder."""
    return folder / _SOCKET


def remove(folder: Path) -> None:
    """Take away a folder and its socket; one that holds something else stays."""
    with contextlib.suppress(OSError):
        socket_in(folder).unlink(missing_ok=True)
        folder.rmdir()


def sweep() -> None:
    """Take away the folders that nobody uses any more."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}-*"):
        if _left_behind(folder):
            remove(folder)


def _left_behind(folder: Path) -> bool:
    named = _NAME.fullmatch(folder.name)
    try:
        about = folder.lstat()
        others = [entry.name for entry in folder.iterdir() if entry.name != _SOCKET]
    except OSError:
        return False
    ours = stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid()
    if named is None or not ours or others or start_ticks(int(named[1])) == int(named[2]):
        return False
    return not _listens(socket_in(folder))


def _listens(address: Path) -> bool:
    """Return whether a process answers there: also one that this process cannot see, as in another container."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(1.0)
        try:
            asking.connect(str(address))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:
            return True
    return True
