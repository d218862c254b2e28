"""The logs of an agent that runs in the local sandbox, copied into its trial's folder as they grow.

What comes out at the end of the agent takes the place of the copies. Nothing of the sandbox is opened on the host: our
code inside reads the new ends of plain files (`Sandbox.news`), and a copy is a new file with the name of a log. A file
that is there already, as the trajectory of an agent on the host, is left alone. No copy ever holds a secret value: a
trial that is killed leaves its copies until a resume runs it again.
"""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from terminalbench.sandbox.activity import FileTail
from terminalbench.secrets.values import NONE, ConcealedStream, Secrets

MOST_BYTES = 16 << 20
"""So much of a log is copied while it grows."""
_MOST_LOGS = 20
_LOG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,98}\.(?:txt|log|jsonl)")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LogMirror:
    """The copies of one trial, in the folder that its logs come to. Never raises: a trial runs without them, too.

    A copy never holds one of the `secrets`: what is not yet a whole line waits for its rest.
    """

    def __init__(self, folder: Path, secrets: Secrets = NONE) -> None:
        self._folder = folder
        self._secrets = secrets
        self._copies: dict[str, _LogCopy] = {}
        self._open = True

    def take(self, piece: FileTail) -> None:
        """Add the new end of a log to its copy; a log that was written anew begins anew."""
        if not self._open or not _LOG.fullmatch(piece.name):
            return
        if piece.name not in self._copies and len(self._copies) >= _MOST_LOGS:
            return
        with suppress(OSError):
            self._add(piece)

    def _add(self, piece: FileTail) -> None:
        copy = self._copies.setdefault(piece.name, _LogCopy(ConcealedStream(self._secrets)))
        start, data = piece.size - len(piece.data), piece.data
        anew = start < copy.size
        if anew or start > copy.size:  # the rest of what waits is not known, nor the begin of this line
            copy.stream, copy.inside = ConcealedStream(self._secrets), start > 0
        copy.size = piece.size
        if copy.inside:
            _, end, data = data.partition(b"\n")
            copy.inside = not end
        said = copy.stream.take(data)
        if copy.made is False or not (said or anew):
            return
        path = self._folder / piece.name
        if copy.made is None:
            copy.made = False  # its name is taken by another file
            os.close(os.open(path, _NEW, 0o644))
            copy.made = True
        with os.fdopen(os.open(path, _OLD), "wb", 0) as file:
            if anew:
                file.truncate(0)
            file.write(said[: max(0, MOST_BYTES - os.fstat(file.fileno()).st_size)])

    def remove(self) -> None:
        """Make room for the logs as they are at the end; nothing is copied from now on until `reopen`."""
        self._open = False
        for name in (name for name, copy in self._copies.items() if copy.made):
            with suppress(OSError):
                (self._folder / name).unlink()
        self._copies.clear()

    def reopen(self) -> None:
        """The agent runs again: a task has another step for it."""
        self._open = True


@dataclass
class _LogCopy:
    """How much of a log is known by now, what of it waits, and whether it is `inside` a line of unknown begin.

    `made`: the copy is there; False: its name is taken by another file.
    """

    stream: ConcealedStream
    size: int = 0
    inside: bool = False
    made: bool | None = None
