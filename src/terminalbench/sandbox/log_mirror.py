"""The logs of an agent that runs in the local sandbox, copied into its trial's folder as they grow.

What comes out at the end of the agent takes the place of the copies. Nothing of the sandbox is opened on the host: our
code inside reads the new ends of plain files (`Sandbox.news`), and a copy is a new file with the name of a log. A file
that is there already, as the trajectory of an agent on the host, is left alone.
"""

import os
import re
from contextlib import suppress
from pathlib import Path

from terminalbench.sandbox.activity import FileTail

MOST_BYTES = 16 << 20
"""So much of a log is copied while it grows."""
_MOST_LOGS = 20
_LOG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,98}\.(?:txt|log|jsonl)")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LogMirror:
    """The copies of one trial, in the folder that its logs come to. Never raises: a trial runs without them, too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ends: dict[str, int | None] = {}
        self._open = True

    def take(self, piece: FileTail) -> None:
        """Add the new end of a log to its copy; a log that was written anew begins anew."""
        if not self._open or not _LOG.fullmatch(piece.name):
            return
        if piece.name not in self._ends and len(self._ends) >= _MOST_LOGS:
            return
        with suppress(OSError):
            self._ends[piece.name] = self._added(piece)

    def _added(self, piece: FileTail) -> int | None:
        """How much of the log is known by now; None: its name is taken by another file."""
        start, known = piece.size - len(piece.data), self._ends.get(piece.name, -1)
        if known is None:
            return None
        path = self._folder / piece.name
        if known < 0:
            try:
                handle = os.open(path, _NEW, 0o644)
            except FileExistsError:
                return None
        else:
            handle = os.open(path, _OLD)
        with os.fdopen(handle, "wb", 0) as copy:
            if start < known:
                copy.truncate(0)
            size = os.fstat(handle).st_size
            gap = b"\n" if start > max(known, 0) else b""
            copy.write((gap + piece.data)[: max(0, MOST_BYTES - size)])
        return piece.size

    def remove(self) -> None:
        """Make room for the logs as they are at the end; nothing is copied from now on until `reopen`."""
        self._open = False
        for name in (name for name, end in self._ends.items() if end is not None):
            with suppress(OSError):
                (self._folder / name).unlink()
        self._ends.clear()

    def reopen(self) -> None:
        """The agent runs again: a task has another step for it."""
        self._open = True
