"""Reading files that an agent could have written: never through a link, never a pipe, never without a bound."""

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def open_plain(path: Path) -> Generator[BinaryIO | None]:
    """`path` opened for reading if it is a plain file, else None: a link, a pipe or nothing at all."""
    try:
        # O_NONBLOCK: opening a pipe that nobody writes to would wait for ever.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        yield None
        return
    with os.fdopen(handle, "rb", buffering=0) as raw:
        yield raw


def read_plain(path: Path, limit: int) -> bytes | None:
    """The content of a plain file of at most `limit` bytes, else None."""
    with open_plain(path) as stream:
        if stream is None:
            return None
        try:
            size = os.fstat(stream.fileno()).st_size
            if size > limit:
                return None
            # One byte more than it has: what grows meanwhile is read too, up to the limit.
            data = stream.read(size + 1)
            while len(data) <= limit and (more := stream.read(1 << 16)):
                data += more
        except OSError:
            return None
        return data if len(data) <= limit else None


def is_plain(path: Path) -> bool:
    """Whether `path` is a plain file and not a link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def remove_traps(folder: Path) -> None:
    """Remove from a folder an agent could write to all that is neither file nor folder, and links that lead out of it.

    Harbor reads and writes such folders on the host: through a link it would reach a file of ours, and at a pipe it
    would wait for ever.
    """
    home = folder.resolve()
    for root, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = Path(root) / name
            try:
                mode = path.lstat().st_mode
                inside = stat.S_ISLNK(mode) and path.resolve().is_relative_to(home)
                if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or inside):
                    path.unlink()
            except (FileNotFoundError, RuntimeError):  # gone meanwhile; a link to itself leads nowhere
                continue
