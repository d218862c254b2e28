"""What an agent writes to its logs while it runs in a local sandbox, seen from outside.

The logs lie in the sandbox's own file system and are copied out when the agent is through. Until then our code inside
the sandbox reads what is new in them every few seconds. Nothing of it is kept: the answers 429 in it are counted, and
that something was written is a sign of life. What comes out is the agent's: it is bounded, and only searched.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from terminalbench.sandbox.activity import HITS, Activity
from terminalbench.sandbox.errors import SandboxError

LOOK_SEC = 5.0
MOST_BYTES = 1 << 20
"""How much one look may bring out."""

_MOST_FILES = 64
_LONGEST_NAME = 512
_TIMEOUT_SEC = 5.0


class _Box(Protocol):
    async def news(self, source: str, known: dict[str, int], most_bytes: int) -> bytes: ...


@dataclass(frozen=True)
class Piece:
    """The new end of a file: how long the file is now, and what was added."""

    name: str
    size: int
    data: bytes


def parse(data: bytes) -> list[Piece]:
    """The pieces in what came out: for each a line of JSON, then its bytes. What makes no sense ends the list."""
    found: list[Piece] = []
    while data and len(found) < _MOST_FILES:
        line, _, rest = data.partition(b"\n")
        try:
            name, size, length = json.loads(line)
        except (ValueError, TypeError, RecursionError):
            break
        plain = type(name) is str and type(size) is int and type(length) is int
        if not plain or len(name) > _LONGEST_NAME or not 0 <= length <= min(size, len(rest)):
            break
        found.append(Piece(name, size, rest[:length]))
        data = rest[length:]
    return found


class LiveLogs:
    """Follows the logs in the folder `source` of a sandbox while commands run in it; None: there is no such folder."""

    def __init__(self, source: str | None, activity: Activity, look_sec: float | None = None) -> None:
        self._source = source
        self._activity = activity
        self._look_sec = LOOK_SEC if look_sec is None else look_sec
        self._known: dict[str, int] = {}
        self._commands = 0
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def followed(self, sandbox: _Box) -> AsyncGenerator[None]:
        """While a command runs. A short one is over before the first look."""
        self._commands += 1
        if self._task is None and self._source is not None:
            self._task = asyncio.create_task(self._follow(sandbox, self._source))
        try:
            yield
        finally:
            self._commands -= 1
            if self._commands == 0 and self._task is not None:
                task, self._task = self._task, None
                task.cancel()

    async def _follow(self, sandbox: _Box, source: str) -> None:
        while True:
            await asyncio.sleep(self._look_sec)
            try:
                async with asyncio.timeout(_TIMEOUT_SEC):
                    self._take(parse(await sandbox.news(source, self._known, MOST_BYTES)))
            except (OSError, SandboxError, TimeoutError):
                continue  # a sandbox that is full or about to end; the next look tells, or the end

    def _take(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            self._known.pop(piece.name, None)
            self._known[piece.name] = piece.size
        while len(self._known) > _MOST_FILES:
            del self._known[next(iter(self._known))]  # the one that was quiet for longest
        if pieces:
            self._activity.stir()
        self._activity.hit(sum(len(HITS.findall(piece.data.decode(errors="replace"))) for piece in pieces))
