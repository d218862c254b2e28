"""The log of all operations, memory.jsonl, and memory.db, which is made from it.

A writer holds the lock, brings the database up to the end of the log, appends an entry (fsync), and applies it. A
process that is killed anywhere in between leaves a log that the next one applies: what was acknowledged is in the log,
and the database says how far it has read. A damaged database is set aside and made again. A line of the log that cannot
be read is kept as a problem with its number; one that a killed process cut off is no loss: its caller was never told
that it is done. A reader brings the database up to the end of the log too, unless a writer that was stopped holds the
lock: then it reads what the database has, and is behind.
"""

import hashlib
import os
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from msgspec.structs import replace

from terminalbench.archivist.entries import Entry, Unfit, applied
from terminalbench.archivist.tables import MIGRATIONS, find_lesson, put_entry, put_lesson
from terminalbench.errors import TbenchError, UserError
from terminalbench.experiments.project import marked_root
from terminalbench.files import append_lines
from terminalbench.index.database import is_damaged, migrate, opened, set_aside, transaction, write_ahead
from terminalbench.json_files import JsonLines, encode_line, tail_jsonl
from terminalbench.locks import LockHeld, changing
from terminalbench.modes import make_file
from terminalbench.records.lesson import Lesson
from terminalbench.records.values import stamp

_MARK_BYTES = 256
_CACHE_KB = 64_000
"""Questions read lessons from all over the file: more of it is kept than SQLite does by default."""


type HeldUp = Callable[[Path], None]


class ProblemKind(StrEnum):
    """What is wrong with a line of the log."""

    CUT_OFF = "cut_off"
    """A process ended while it wrote: the operation was never done."""
    LOST = "lost"
    """An operation that was done cannot be read, or does not fit what went before."""


@dataclass(frozen=True)
class LogProblem:
    """A line of the log that the lessons do without, and why."""

    kind: ProblemKind
    what: str


@dataclass(frozen=True)
class MemoryFolder:
    """Where memory lies: `.terminalbench` of a project.

    <folder>/
      memory.jsonl    the log: every operation, append-only; all there is to keep and to copy
      memory.db       lessons, words and tags as of the log; deleted, it comes back
      memory.lock     held by the process that writes
    """

    folder: Path

    @property
    def log(self) -> Path:
        """Every operation, append-only."""
        return self.folder / "memory.jsonl"

    @property
    def database(self) -> Path:
        """What is made from the log."""
        return self.folder / "memory.db"

    @property
    def exists(self) -> bool:
        """Whether anything was ever kept here."""
        return self.log.exists() or self.database.exists()


def memory_of(results_root: Path) -> Path:
    """Where the memory of the project lies that a results folder belongs to."""
    return (marked_root(results_root) or results_root.parent) / ".terminalbench"


def memory_stamp(folder: Path) -> tuple[int, int] | None:
    """Changes when something was written; None where there is no memory."""
    try:
        status = MemoryFolder(folder).log.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


class Store:
    """An open memory. `write` is the only way to change it; what is read is up to the end of the log at its opening.

    `behind` is one that could not be brought so far, because a process that writes holds the lock. `connection` is
    another one after the first entry of a memory that was empty: nothing is made on disk before. `held_up` is told
    the lock that a writer waits for behind one that was stopped.
    """

    def __init__(
        self,
        place: MemoryFolder,
        connection: sqlite3.Connection,
        *,
        behind: bool = False,
        held_up: HeldUp | None = None,
    ) -> None:
        self.place = place
        self.connection = connection
        self.behind = behind
        self._held_up = held_up

    def write(self, make: Callable[[], Sequence[Entry]]) -> list[Entry]:
        """Number the entries that `make` returns, append them to the log, and apply them.

        `make` sees the store as it is at that moment: no other process writes meanwhile. It may refuse by raising, and
        is asked again where the memory was empty.
        """
        if not self.place.exists:
            if not make():
                return []
            self.close()
            self.connection = _connected(self.place, write=True, held_up=self._held_up)
        with changing(self.place.log, held_up=self._held_up):
            append_lines(self.place.log, b"")  # closes what a killed process has cut off
            _catch_up(self.connection, self.place.log)
            seq, now = self.connection.execute("SELECT seq FROM reading").fetchone()[0], stamp(datetime.now(UTC))
            entries = [replace(entry, seq=seq + at, time=now) for at, entry in enumerate(make(), start=1)]
            if entries:
                self._check(entries)
                append_lines(self.place.log, b"".join(map(encode_line, entries)), durable=True)
                _catch_up(self.connection, self.place.log)
        return entries

    def close(self) -> None:
        """Let go of the database."""
        self.connection.close()

    def problems(self) -> list[LogProblem]:
        """What of the log cannot be read."""
        rows = self.connection.execute("SELECT kind, what FROM problems ORDER BY rowid")
        return [LogProblem(ProblemKind(row["kind"]), row["what"]) for row in rows]

    def _check(self, entries: Sequence[Entry]) -> None:
        """Refuse what could not be applied, before it is in the log for good."""
        after: dict[str, Lesson] = {}

        def find(name: str) -> Lesson | None:
            return after.get(name) or find_lesson(self.connection, name)

        for entry in entries:
            try:
                changed = applied(entry, find)
            except Unfit as error:
                raise UserError(str(error), where=entry.id) from error
            after.update((lesson.id, lesson) for lesson in changed)


@contextmanager
def open_store(folder: Path, *, write: bool = False, held_up: HeldUp | None = None) -> Generator[Store]:
    """The memory in a folder, up to date. Nothing is made where there is none, not before the first entry.

    Where the folder cannot be written, it is read from the log into the memory of this process.
    """
    place = MemoryFolder(folder)
    with closing(_opened_store(place, write=write, held_up=held_up)) as store:
        try:
            yield store
        except sqlite3.DatabaseError as error:
            if not is_damaged(error):
                raise
            with changing(place.log):
                set_aside(place.database)
            hint = "it was set aside; the next command makes it again from the log"
            raise TbenchError(f"is damaged: {error}", where=str(place.database), hint=hint) from error


def _opened_store(place: MemoryFolder, *, write: bool, held_up: HeldUp | None) -> Store:
    if not place.exists:
        return Store(place, _ready(opened(":memory:"), place.log), held_up=held_up)
    if not write and not os.access(place.folder, os.W_OK | os.X_OK):
        return _from_log(place)
    try:
        return Store(place, _connected(place, write=write, held_up=held_up), held_up=held_up)
    except LockHeld:
        return _behind(place)


def _behind(place: MemoryFolder) -> Store:
    """The memory as its database has it; where that cannot be read, as the log has it."""
    try:
        connection = opened(f"{place.database.absolute().as_uri()}?mode=ro")
        try:
            _, offset = _reached(connection, place.log)
        except (sqlite3.Error, TbenchError):
            connection.close()
            raise
    except sqlite3.Error:
        return Store(place, _ready(opened(":memory:"), place.log))
    return Store(place, connection, behind=place.log.exists() and offset != place.log.stat().st_size)


def _from_log(place: MemoryFolder) -> Store:
    """The memory as its log has it. That it is gone, only a database beside it can tell."""
    if not place.log.exists():
        try:
            with closing(opened(f"{place.database.absolute().as_uri()}?mode=ro&immutable=1")) as read:
                _reached(read, place.log)
        except sqlite3.Error as error:
            raise TbenchError(f"cannot be used: {error}", where=str(place.database)) from error
    return Store(place, _ready(opened(":memory:"), place.log))


def _connected(place: MemoryFolder, *, write: bool, held_up: HeldUp | None) -> sqlite3.Connection:
    with changing(place.log, wait=write, held_up=held_up):
        make_file(place.database)
        try:
            return _in_file(place)
        except sqlite3.DatabaseError as error:
            if not is_damaged(error):
                raise TbenchError(f"cannot be used: {error}", where=str(place.database)) from error
        set_aside(place.database)
        return _in_file(place)


def _in_file(place: MemoryFolder) -> sqlite3.Connection:
    connection = opened(f"{place.database.absolute().as_uri()}?mode=rwc")
    try:
        write_ahead(connection)
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
    except sqlite3.Error:
        connection.close()
        raise
    return _ready(connection, place.log)


def _ready(connection: sqlite3.Connection, log: Path) -> sqlite3.Connection:
    try:
        migrate(connection, MIGRATIONS)
        _catch_up(connection, log)
    except (sqlite3.Error, TbenchError):
        connection.close()
        raise
    return connection


def _reached(connection: sqlite3.Connection, log: Path) -> tuple[int, int]:
    """The entry and the byte up to which the log was read; an error where it is another log, or gone."""
    seq, offset, mark = connection.execute("SELECT seq, offset, mark FROM reading").fetchone()
    if _mark(log, offset) != mark:
        hint = f"restore it; or delete {log.with_suffix('.db').name}, and the log counts as it is now"
        raise TbenchError(
            f"is not the log that {log.with_suffix('.db').name} has read: its first {offset} bytes have changed",
            where=str(log),
            hint=hint,
        )
    return seq, offset


def _catch_up(connection: sqlite3.Connection, log: Path) -> None:
    """Apply what the log has beyond what was read of it; each entry once."""
    seq, offset = _reached(connection, log)
    found = tail_jsonl(log, offset, Entry)
    if found.offset == offset:
        return
    with transaction(connection):
        after = _apply(connection, found, seq)
        lost_entries = len(found.bad) > 0 and after.missing
        for bad in found.bad:
            cut = not lost_entries and bad.cut_off
            kind = ProblemKind.CUT_OFF if cut else ProblemKind.LOST
            said = "was cut off by the end of its writer" if cut else f"cannot be read: {bad.reason}"
            _note(connection, kind, f"line {_line_number(log, offset, bad.number)} {said}")
        reading = (after.seq, found.offset, _mark(log, found.offset))
        connection.execute("UPDATE reading SET seq = ?, offset = ?, mark = ?", reading)


@dataclass
class _Reached:
    seq: int
    missing: bool = False


def _apply(connection: sqlite3.Connection, found: JsonLines, seq: int) -> _Reached:
    reached = _Reached(seq)
    for entry in found.records:
        if entry.seq <= reached.seq:
            _note(connection, ProblemKind.LOST, f"entry {entry.seq} is there again, and was not applied again")
            continue
        if entry.seq > reached.seq + 1:
            reached.missing = True
            first, last = reached.seq + 1, entry.seq - 1
            which = f"entry {first} is" if first == last else f"entries {first} to {last} are"
            _note(connection, ProblemKind.LOST, f"{which} missing")
        reached.seq = entry.seq
        put_entry(connection, entry)
        try:
            changed = applied(entry, lambda name: find_lesson(connection, name))
        except Unfit as error:
            _note(connection, ProblemKind.LOST, f"entry {entry.seq} cannot be applied: {error}")
            continue
        for lesson in changed:
            put_lesson(connection, lesson)
    return reached


def _note(connection: sqlite3.Connection, kind: ProblemKind, what: str) -> None:
    connection.execute("INSERT INTO problems (kind, what) VALUES (?, ?)", (kind, what))


def _line_number(log: Path, offset: int, number: int) -> int:
    """The number in the whole file of a line that is the `number`th after an offset."""
    with log.open("rb") as stream:
        return stream.read(offset).count(b"\n") + number


def _mark(log: Path, offset: int) -> str:
    """What the log holds just before an offset; nothing where it begins. Another mark, another log."""
    if offset == 0:
        return ""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, offset - _MARK_BYTES))
            held = stream.read(min(offset, _MARK_BYTES))
    except FileNotFoundError:
        held = b""
    return hashlib.blake2b(held, digest_size=8).hexdigest() if len(held) == min(offset, _MARK_BYTES) else "shorter"
