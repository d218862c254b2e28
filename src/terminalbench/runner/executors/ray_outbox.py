"""A job on a node that does not see the runner's disk: what it asks, says and leaves, given out as it is asked for.

The runner's side calls `exchange` again and again. It is given questions to the gate first, which wait for nothing
else; then what Harbor printed, its events, and the logs of running trials. The folder of a trial goes before the event
that tells of its end.
"""

import contextlib
import os
import socketserver
import stat
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import override

import msgspec

from terminalbench.decode import NOT_DECODED, decode
from terminalbench.errors import TbenchError
from terminalbench.experiments.batch import Batch
from terminalbench.files import open_plain, read_plain
from terminalbench.harbor.limits.admission import RemoteCall, RemoteReply, short_address
from terminalbench.records.event import Event, EventKind
from terminalbench.runner.executors.ray_messages import (
    CHUNK_BYTES,
    FOLDER_BYTES,
    FOLDER_ENTRIES,
    EventLine,
    FolderEnd,
    FolderKind,
    FolderPiece,
    FolderStart,
    GateQuestion,
    HarborExit,
    HarborOutput,
    JobFile,
    LiveLogPiece,
    Message,
    OutputFile,
    answers,
)
from terminalbench.sandbox.activity import FILE_NAME as ACTIVITY

WAIT_SEC = 1.0
"""For how long `exchange` waits for something to say."""
_LOOK_SEC = 0.1
_LIVE_SEC = 1.0
_LIVE_FILES = 20
_DEEPEST, _LONGEST = 200, 3000
_SMALL = 64 << 20
_NAMES_PATHS = frozenset({"config.json", "lock.json", "result.json"})
"""Where Harbor writes paths, which are those of the runner's machine again when they come there."""


class Questions:
    """Takes questions of the Harbor process at a socket, and gives it the answers."""

    def __init__(self, address: Path) -> None:
        self.changed = threading.Condition()
        self._open: list[GateQuestion] = []
        self._replies: dict[int, RemoteReply] = {}
        self._count = 0
        asker = self

        class Handler(socketserver.StreamRequestHandler):
            @override
            def handle(self) -> None:
                with contextlib.suppress(*NOT_DECODED, OSError):
                    question = decode(self.rfile.readline(1 << 20), RemoteCall)
                    if (reply := asker.ask(question)) is not None:
                        self.wfile.write(msgspec.json.encode(reply) + b"\n")

        with short_address(address) as short:
            self._server = _QuestionServer(short, Handler)
        threading.Thread(target=self._server.serve_forever, name="gate", daemon=True).start()

    def ask(self, question: RemoteCall) -> RemoteReply | None:
        """Have it asked; the answer, where one is awaited."""
        with self.changed:
            self._count += 1
            number = self._count
            self._open.append(GateQuestion(number, question))
            self.changed.notify_all()
            if not question.awaited:
                return None
            self.changed.wait_for(lambda: number in self._replies)
            return self._replies.pop(number)

    def take(self) -> list[GateQuestion]:
        """Those that were not asked yet. With the lock held."""
        found, self._open = self._open, []
        return found

    def answer(self, data: bytes) -> None:
        """Give out answers."""
        with self.changed:
            waited = {one.id: one.reply for one in answers.decode(data)}
            self._replies |= waited
            self.changed.notify_all()

    def close(self) -> None:
        """Take no more."""
        self._server.shutdown()
        self._server.server_close()


class _QuestionServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 128


@dataclass
class _GrowingFile:
    """A file that grows: what of it was not read yet."""

    path: Path
    offset: int = 0
    file: int = 0

    def read(self, most: int = CHUNK_BYTES) -> tuple[int, bytes]:
        """The next bytes, and where they stand. A file that was replaced is read from its beginning."""
        with open_plain(self.path) as stream:
            if stream is None:
                return self.offset, b""
            status = os.fstat(stream.fileno())
            if status.st_ino != self.file or status.st_size < self.offset:
                self.file, self.offset = status.st_ino, 0
            stream.seek(self.offset)
            data = stream.read(most) or b""
            start, self.offset = self.offset, self.offset + len(data)
            return start, data

    def read_whole(self) -> tuple[int, bytes]:
        """All of a small file that is written anew each time, when it was."""
        try:
            status = self.path.lstat()
        except OSError:
            return 0, b""
        if status.st_mtime_ns == self.file:
            return 0, b""
        self.file = status.st_mtime_ns
        return 0, read_plain(self.path, CHUNK_BYTES) or b""


def _is_sent(name: str) -> bool:
    """Return whether a file of that name is sent by itself: it is text, and no temporary one."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return name == ACTIVITY or not name.rpartition("/")[2].startswith(".")


class Outbox:
    """All that is to be said of a job in `batch`, a folder of this node. `moved` are paths here, and what they are."""

    def __init__(self, batch: Batch, job: str, moved: dict[str, str], questions: Questions) -> None:
        self._questions = questions
        self._moved = sorted(moved.items(), key=lambda pair: -len(pair[0]))
        self._outputs: dict[OutputFile, _GrowingFile] = {
            "log": _GrowingFile(batch.job_log(job)),
            "errors": _GrowingFile(batch.events_jsonl.with_name(f"{batch.events_jsonl.name}.errors.log")),
        }
        self._places: dict[FolderKind, Path] = {"try": batch.superseded / job, "trial": batch.job_folder(job)}
        self._events = _GrowingFile(batch.events_jsonl)
        self._torn = b""
        self._running: dict[str, dict[str, _GrowingFile]] = {}
        self._looked_at = 0.0
        self._sent: set[tuple[str, str]] = set()
        self._code: int | None = None
        self._broken: str | None = None
        self._stream = self._all()
        self.drained = threading.Event()
        self.closed = threading.Event()

    def end(self, code: int) -> None:
        """Harbor has ended: all that it left is to be sent. The last word waits until the place is `closed`."""
        self._code = code

    def fail(self, what: str) -> None:
        """The job could not be run here."""
        self._broken = what

    def exchange(self, replies: bytes) -> bytes:
        """Take answers; return what is to be said next, after a while also nothing."""
        if self._broken is not None:
            raise TbenchError(self._broken)
        self._questions.answer(replies)
        deadline = time.monotonic() + WAIT_SEC
        while True:
            with self._questions.changed:
                found: list[Message] = [*self._questions.take()]
            found += self._next()
            if found or time.monotonic() > deadline:
                return msgspec.msgpack.encode(found)
            with self._questions.changed:
                self._questions.changed.wait(_LOOK_SEC)

    def _next(self) -> Iterator[Message]:
        size = 0
        for message in self._stream:
            if message is None:
                return
            yield message
            size += len(getattr(message, "data", b"")) + 256
            if size > CHUNK_BYTES:
                return

    def _all(self) -> Iterator[Message | None]:
        """Everything in its order; None: nothing for now."""
        while True:
            code = self._code  # before looking: then all that it has written is found
            said = False
            for message in self._round(last=code is not None):
                said = True
                yield message
            if code is not None and not said:
                self.drained.set()
                self.closed.wait()
                yield HarborExit(code)
                return
            if not said:
                yield None

    def _round(self, *, last: bool) -> Iterator[Message]:
        for name, grown in self._outputs.items():
            if data := grown.read()[1]:
                yield HarborOutput(name, data)
        lines = (self._torn + self._events.read()[1]).split(b"\n")
        self._torn = lines.pop()
        for line in lines:
            yield from self._told(line)
        if last and not lines:
            yield from self._left()
        elif time.monotonic() > self._looked_at + _LIVE_SEC:
            self._looked_at = time.monotonic()
            for trial in self._running:
                yield from self._live(trial)

    def _told(self, line: bytes) -> Iterator[Message]:
        try:
            event = decode(line, Event)
        except NOT_DECODED:
            return
        trial = event.trial or ""
        if event.kind == EventKind.TRIAL_STARTED:
            self._running[trial] = {}
        elif event.kind == EventKind.TRIAL_ENDED:
            self._running.pop(trial, None)
            if event.detail.get("retried"):
                yield from self._folder("try", f"{trial}-try{event.detail.get('try', 1)}")
            else:
                yield from self._folder("trial", trial)
        yield EventLine(line)

    def _live(self, trial: str) -> Iterator[Message]:
        folder, known = self._places["trial"] / trial, self._running[trial]
        names: list[str] = []
        with contextlib.suppress(OSError):
            names = [f"agent/{name}" for name in sorted(os.listdir(folder / "agent"))[:_LIVE_FILES]]  # noqa: PTH208
        for name in ("trial.log", ACTIVITY, *names):
            grown = known.setdefault(name, _GrowingFile(folder / name))
            offset, data = grown.read_whole() if name.endswith((".json", ACTIVITY)) else grown.read()
            if data and _is_sent(name):
                yield LiveLogPiece(trial, name, offset, data)

    def _left(self) -> Iterator[Message]:
        """Return what no event told of: trials that did not end, and Harbor's files of the job."""
        for kind, place in self._places.items():
            for name in sorted(filter(_is_sent, os.listdir(place))) if place.is_dir() else ():  # noqa: PTH208
                path = place / name
                if path.is_dir() and not path.is_symlink():
                    yield from self._folder(kind, name)
                elif ("file", name) not in self._sent and (data := read_plain(path, _SMALL)) is not None:
                    self._sent.add(("file", name))
                    yield JobFile(name, self._as_there(name, data))

    def _folder(self, kind: FolderKind, name: str) -> Iterator[Message]:
        """A folder with all that is in it: no link is followed, nothing but files, links and folders is sent."""
        place = self._places[kind]
        if (kind, name) in self._sent or not (place / name).is_dir():
            return
        self._sent.add((kind, name))
        yield FolderStart(kind, name)
        size, count, missing = 0, 0, 0
        unread: list[OSError] = []
        top = os.fsencode(place / name)
        for root, folders, names, handle in os.fwalk(top, onerror=unread.append):
            found = [*folders, *names]
            below = root[len(top) :]
            if len(below) > _LONGEST or below.count(b"/") >= _DEEPEST:  # an agent can make folders without end
                missing += len(found)
                folders.clear()
                continue
            for entry in found:
                try:
                    status = os.stat(entry, dir_fd=handle, follow_symlinks=False)
                    count += 1
                    if count > FOLDER_ENTRIES or size + status.st_size > FOLDER_BYTES:
                        missing += 1
                        continue
                    size += status.st_size
                    path = os.path.relpath(os.path.join(root, entry), top)  # noqa: PTH118
                    yield from self._entry(path, entry, status, handle)
                except OSError:
                    missing += 1
        yield FolderEnd(missing + len(unread))

    def _entry(self, path: bytes, name: bytes, status: os.stat_result, handle: int) -> Iterator[Message]:
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISDIR(status.st_mode):
            yield FolderPiece(path, "folder", mode)
        elif stat.S_ISLNK(status.st_mode):
            yield FolderPiece(path, "link", data=os.readlink(name, dir_fd=handle))
        elif stat.S_ISREG(status.st_mode):
            opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=handle)
            with os.fdopen(opened, "rb", buffering=0) as stream:
                if path.decode(errors="replace") in _NAMES_PATHS and status.st_size <= _SMALL:
                    yield FolderPiece(path, mode=mode, data=self._as_there(path.decode(), stream.readall() or b""))
                    return
                left = status.st_size
                while True:
                    data = stream.read(min(CHUNK_BYTES, left)) or b""
                    left -= len(data)
                    more = bool(data) and left > 0
                    yield FolderPiece(path, mode=mode, data=data, more=more)
                    if not more:
                        return

    def _as_there(self, name: str, data: bytes) -> bytes:
        """A file of Harbor's with the paths that the runner's machine has."""
        for here, there in self._moved if name in _NAMES_PATHS else ():
            data = data.replace(here.encode(), msgspec.json.encode(there)[1:-1])
        return data
