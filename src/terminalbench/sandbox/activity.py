"""Signs of life of a trial in the local sandbox, whose logs come out only at its end, and copies of these logs.

The time of the file `.activity` is that of the last sign, and it tells how many answers 429 the agent's logs show so
far. It is ours: the agent cannot reach it, and nothing of what the agent wrote stands in it. While the agent runs, our
code inside the sandbox reads what is new in its logs every few seconds: what comes out is bounded, searched, copied.

A copy is a new file with the name of a log; what comes out at the end of the agent takes its place. Nothing of the
sandbox is opened on the host. A file that is there already, as the trajectory of an agent on the host, is left alone.
No copy ever holds a secret value: a trial that is killed leaves its copies until a resume runs it again.
"""

import json
import os
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from terminalbench.decode import NOT_DECODED, decode
from terminalbench.files import read_plain
from terminalbench.json_files import write_json
from terminalbench.sandbox.errors import SandboxError
from terminalbench.secrets.values import NONE, ConcealedStream, Secrets

if TYPE_CHECKING:
    import asyncio  # only a sandbox needs it, not the many who look at the file

HITS = re.compile(
    r"\"(?:error_)?status(?:_code)?\\*\":\s?429\b|rate_limit_error|\bRateLimitError\b|\b429 Too Many Requests",
    re.IGNORECASE,
)
"""An answer 429 of a provider, as clients log it."""
_SPEECH = re.compile(r"\"type\":\s?\"(?:assistant|user)\"")
"""Events in which an agent or a tool speaks: what they tell of a 429 is not the client's word, or not its only one."""

FILE_NAME = ".activity"
LOOK_SEC = 5.0
MOST_BYTES = 1 << 20
"""How much one look may bring out."""

_MOST_FILES = 64
_LONGEST_NAME = 512
_TIMEOUT_SEC = 5.0
_EVERY_SEC = 1.0
_SIZE_LIMIT = 4096

MOST_COPIED_BYTES = 16 << 20
"""So much of a log is copied while it grows."""
_MOST_LOGS = 20
_LOG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,98}\.(?:txt|log|jsonl)")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def count_hits(text: str) -> int:
    """Return how many answers 429 a log tells of: one an event, or one a paragraph where a client writes plain text."""
    hits, before = 0, False
    for line in text.splitlines():
        event = line.startswith("{")
        hit = HITS.search(line) is not None and not (event and _SPEECH.search(line))
        hits += hit and (event or not before)
        before = hit and not event
    return hits


class _Signs(msgspec.Struct):
    rate_limit_hits: int = 0


def live_hits(trial_dir: Path) -> int:
    """Return how many answers 429 a running trial in the local sandbox has met so far, as far as it is known."""
    try:
        return decode(read_plain(trial_dir / FILE_NAME, _SIZE_LIMIT) or b"{}", _Signs).rate_limit_hits
    except NOT_DECODED:
        return 0


class Activity:
    """Renews the file whenever something happens, at most once a second. Never raises: it is no reason to die."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE_NAME
        self._at = 0.0
        self._hits = 0

    def stir(self) -> None:
        """Something happened."""
        now = time.monotonic()
        if now - self._at < _EVERY_SEC:
            return
        self._at = now
        with suppress(OSError):
            self._file.touch()

    def hit(self, hits: int) -> None:
        """The logs show so many answers 429 by now."""
        if hits <= self._hits:
            return
        self._hits = hits
        with suppress(OSError):
            write_json(self._file, _Signs(self._hits))


class _WatchedSandbox(Protocol):
    async def news(self, source: str, known: dict[str, int], most_bytes: int) -> bytes: ...


class FileTail(NamedTuple):
    """The new end of a file: how long the file is now, and what was added."""

    name: str
    size: int
    data: bytes


def parse(data: bytes) -> list[FileTail]:
    """The pieces in what came out: for each a line of JSON, then its bytes. What makes no sense ends the list."""
    found: list[FileTail] = []
    while data and len(found) < _MOST_FILES:
        line, _, rest = data.partition(b"\n")
        try:
            name, size, length = json.loads(line)
        except (ValueError, TypeError, RecursionError):
            break
        plain = type(name) is str and type(size) is int and type(length) is int
        if not plain or len(name) > _LONGEST_NAME or not 0 <= length <= min(size, len(rest)):
            break
        found.append(FileTail(name, size, rest[:length]))
        data = rest[length:]
    return found


class LiveLogs:
    """Follows the logs in the folder `source` of a sandbox while commands run in it; None: there is no such folder.

    `told` hears of each new piece.
    """

    def __init__(self, source: str | None, activity: Activity, told: Callable[[FileTail], None]) -> None:
        self._source = source
        self._activity = activity
        self._told = told
        self._look_sec = LOOK_SEC
        self._known: dict[str, int] = {}
        self._hits: Counter[str] = Counter()
        self._commands = 0
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def followed(self, sandbox: _WatchedSandbox) -> AsyncGenerator[None]:
        """Follow a command while it runs. A short one is over before the first look."""
        import asyncio

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

    async def _follow(self, sandbox: _WatchedSandbox, source: str) -> None:
        import asyncio

        while True:
            await asyncio.sleep(self._look_sec)
            try:
                async with asyncio.timeout(_TIMEOUT_SEC):
                    self._take(parse(await sandbox.news(source, self._known, MOST_BYTES)))
            except (OSError, SandboxError, TimeoutError):
                continue  # a sandbox that is full or about to end; the next look tells, or the end

    def _take(self, pieces: list[FileTail]) -> None:
        for piece in pieces:
            self._known.pop(piece.name, None)
            self._known[piece.name] = piece.size
            self._told(piece)
        while len(self._known) > _MOST_FILES:
            quiet = next(iter(self._known))  # for longest
            del self._known[quiet], self._hits[quiet]
        if pieces:
            self._activity.stir()
            # Several logs tell of the same answer: the one that tells most counts.
            self._hits.update({piece.name: count_hits(piece.data.decode(errors="replace")) for piece in pieces})
            self._activity.hit(max(self._hits.values()))


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
            file.write(said[: max(0, MOST_COPIED_BYTES - os.fstat(file.fileno()).st_size)])

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
