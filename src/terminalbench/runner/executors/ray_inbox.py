"""The runner's side of a job on a node that does not see its disk: sends what it needs, takes what it says and leaves.

A node can do what is here and nothing else: ask the gate for trials of its own job, add events, log lines and files of
that job, and bring each trial's folder once. A folder is written under `arriving` and renamed when it is whole, so that
a trial is there with all its files or has no result. Who gives up the job stops taking: what its node then still does
comes nowhere.
"""

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.decode import NOT_DECODED, decode
from terminalbench.errors import TbenchError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import Plan
from terminalbench.files import append_lines, opened, write_bytes
from terminalbench.harbor.limits.admission import Admission, answer
from terminalbench.harbor.limits.gate import control_of, gate_of
from terminalbench.json_files import append_jsonl, encode_line
from terminalbench.modes import make_folder
from terminalbench.records.event import Event, EventKind
from terminalbench.runner.executors.base import JobRun
from terminalbench.runner.executors.ray_messages import (
    CHUNK_BYTES,
    FOLDER_BYTES,
    FOLDER_ENTRIES,
    EventLine,
    FolderEnd,
    FolderPiece,
    FolderStart,
    GateAnswer,
    GateQuestion,
    HarborExit,
    HarborOutput,
    JobFile,
    LiveLogPiece,
    messages,
)
from terminalbench.runner.executors.ray_payload import JobPayload, needs_of
from terminalbench.sandbox.activity import FILE_NAME as ACTIVITY

type Call = Callable[..., Any]
"""Calls a method of the node's actor by its name, and returns what it returns."""
_LIVE_BYTES = 1 << 30
_NAME_BYTES = 255


class JobInbox:
    """One job. `doing` is what it is at, for who tells of its end."""

    def __init__(self, job: JobRun, batch: Batch, plan: Plan, call: Call) -> None:
        self._job, self._batch, self._plan, self._call = job, batch, plan, call
        self._folder = batch.job_folder(job.name)
        self._door = Admission(gate_of(batch, plan), control_of(batch, plan), job.profile)
        self._here: set[str] = set()
        self._arrival: _ArrivingFolder | None = None
        self._code: int | None = None
        self.doing = "its files were sent"

    def run(self, token: str, host: str) -> int:
        """Have the job run there, to its end; its exit code. A `TbenchError` for what the node, or we, cannot do."""
        needs = needs_of(self._job, self._plan, self._batch, self._call("place", token))
        self._send(needs)
        about = f"{self._job.name} runs on {host}, which cannot see the results folder, so its files are sent"
        self._note(about)
        there = JobRun(self._job.name, self._job.profile, ["harbor", *needs.argv], self._job.env, Path(), Path())
        self._call("run_apart", there, msgspec.msgpack.encode([*needs.entries.values()]), needs.moved)
        self.doing = "it ran"
        replies: list[GateAnswer] = []
        try:
            while self._code is None:
                said = messages.decode(self._call("exchange", msgspec.msgpack.encode(replies)))
                replies = [GateAnswer(one.id, self._asked(one)) for one in said if isinstance(one, GateQuestion)]
                for message in said:
                    self._take(message)
        finally:
            shutil.rmtree(self._batch.arriving / self._job.name, ignore_errors=True)
            with contextlib.suppress(OSError):
                self._batch.arriving.rmdir()  # the last one does
        return self._code

    def _send(self, needs: JobPayload) -> None:
        for digest in self._call("lacking", msgspec.msgpack.encode([*needs.entries.values()])):
            content = needs.contents[digest]
            if isinstance(content, bytes):
                self._call("put", digest, content, False)
                continue
            with content.open("rb") as stream:
                data = stream.read(CHUNK_BYTES)
                while data or stream.tell() == 0:
                    following = stream.read(CHUNK_BYTES)
                    self._call("put", digest, data, bool(following))
                    if not following:
                        break
                    data = following

    def _asked(self, asked: GateQuestion) -> Any:
        question = asked.question
        if question.trial:
            _checked(question.trial)
        reply = answer(self._door, question)
        if question.what == "ask" and reply.lets_in and question.trial not in self._here:
            make_folder(self._folder / question.trial)  # that it has begun is known also if its node is lost
        return reply

    def _take(self, message: Any) -> None:
        if isinstance(message, EventLine):
            self._told(message.line)
        elif isinstance(message, HarborOutput):
            events = self._batch.events_jsonl
            log = self._job.log if message.file == "log" else events.with_name(f"{events.name}.errors.log")
            with opened(log, os.O_APPEND) as handle:
                _write(handle, message.data)
        elif isinstance(message, LiveLogPiece):
            self._live(message)
        elif isinstance(message, FolderStart):
            self._arrival = _ArrivingFolder(self._batch.arriving / self._job.name, message)
        elif isinstance(message, FolderPiece):
            self._arriving.add(message)
        elif isinstance(message, FolderEnd):
            self._arrived(message.missing)
        elif isinstance(message, JobFile):
            if message.name not in self._here:
                write_bytes(self._folder / _checked(message.name), message.data, durable=False)
        elif isinstance(message, HarborExit):
            self._code = message.code

    def _told(self, line: bytes) -> None:
        try:
            event: Event = decode(line, Event)
        except NOT_DECODED as error:
            raise TbenchError(f"the node sent an invalid event: {error}") from None
        if event.job != self._job.name or event.profile != self._job.profile:
            raise TbenchError(f"the node sent an event of another job, {event.job}")
        trial = _checked(event.trial) if event.trial is not None else None
        append_lines(self._batch.events_jsonl, encode_line(event))
        if event.kind == EventKind.TRIAL_ENDED and event.detail.get("retried") and trial and trial not in self._here:
            shutil.rmtree(self._folder / trial, ignore_errors=True)  # as Harbor does there

    def _live(self, piece: LiveLogPiece) -> None:
        """A log of a running trial, to look at: it is replaced when the trial comes as a whole."""
        folder, _, name = piece.name.rpartition("/")
        known = folder == "agent" or (not folder and name in ("trial.log", ACTIVITY))
        if piece.trial in self._here or not known or not 0 <= piece.offset <= _LIVE_BYTES:
            return
        trial = self._folder / _checked(piece.trial)
        path = trial / folder / (name if name == ACTIVITY else _checked(name))
        with opened(path, os.O_NOFOLLOW) as handle:
            if piece.offset == 0:
                os.ftruncate(handle, 0)
            os.lseek(handle, piece.offset, os.SEEK_SET)
            _write(handle, piece.data)

    @property
    def _arriving(self) -> "_ArrivingFolder":
        if self._arrival is None:
            raise TbenchError("the node sent a file that belongs to no folder")
        return self._arrival

    def _arrived(self, missing: int) -> None:
        arrival, self._arrival = self._arriving, None
        whole, name = arrival.close(), arrival.name
        place = self._folder if arrival.kind == "trial" else self._batch.superseded / self._job.name
        if name in self._here and arrival.kind == "trial":
            return  # it was there as a whole: nothing replaces it
        make_folder(place)
        with contextlib.suppress(FileNotFoundError):
            (place / name).rename(whole.with_name("before"))  # what was seen of it while it ran
        whole.rename(place / name)
        shutil.rmtree(whole.parent, ignore_errors=True)
        if arrival.kind == "trial":
            self._here.add(name)
        if missing:
            most = f"the limit is {FOLDER_BYTES >> 30} GB and {FOLDER_ENTRIES:,} files"
            self._note(
                f"{name}: {missing} of its files were not sent from the node (unreadable, or {most})", trial=name
            )

    def _note(self, text: str, **detail: str) -> None:
        told = Event.now(EventKind.NOTE, self._job.name, profile=self._job.profile, error=text, detail=dict(detail))
        append_jsonl(self._batch.events_jsonl, told)


class _ArrivingFolder:
    """A folder on its way. Links are made last: no name that comes leads through one."""

    def __init__(self, above: Path, what: FolderStart) -> None:
        self.kind, self.name = what.kind, _checked(what.name)
        self._above = above / what.kind
        shutil.rmtree(self._above, ignore_errors=True)  # another that came in part
        self._folder = self._above / "whole"
        make_folder(self._folder)
        self._links: list[FolderPiece] = []
        self._modes: list[tuple[Path, int]] = []
        self._path, self._handle = b"", -1
        self._bytes = self._entries = 0

    def add(self, piece: FolderPiece) -> None:
        parts = piece.path.split(b"/")
        if any(part in (b"", b".", b"..") or b"\0" in part or len(part) > _NAME_BYTES for part in parts):
            raise TbenchError(f"the node sent a file with the forbidden name {piece.path!r}")
        self._bytes += len(piece.data)
        self._entries += piece.path != self._path
        if self._bytes > FOLDER_BYTES or self._entries > FOLDER_ENTRIES + 1:
            raise TbenchError(f"the node sent more than {FOLDER_BYTES >> 30} GB in a folder")
        path = self._folder / os.fsdecode(piece.path)
        if piece.kind == "link":
            self._links.append(piece)
        elif piece.kind == "folder":
            path.mkdir(0o700, parents=True)
            self._modes.append((path, piece.mode & 0o777 | 0o700))
        else:
            if piece.path != self._path:
                self._end_file()
                self._path = piece.path
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                self._handle = os.open(path, flags, 0o600)
                os.fchmod(self._handle, piece.mode & 0o777 | 0o600)
            _write(self._handle, piece.data)

    def close(self) -> Path:
        """All is there: the folder."""
        self._end_file()
        for path, mode in self._modes:
            path.chmod(mode)
        for piece in self._links:
            (self._folder / os.fsdecode(piece.path)).symlink_to(os.fsdecode(piece.data))
        return self._folder

    def _end_file(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
        self._path, self._handle = b"", -1


def _checked(name: str) -> str:
    """The name of a file or folder that a node has given, which leads nowhere else."""
    if not name or name.startswith(".") or "/" in name or "\0" in name or len(name.encode()) > _NAME_BYTES:
        raise TbenchError(f"the node named the unknown trial {name!r}")
    return name


def _write(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]
