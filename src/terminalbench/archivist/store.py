"""The log of all operations, memory.jsonl, and memory.db, which is made from it.

A writer holds the lock, brings the database up to the end of the log, appends an entry (fsync), and applies it. A
process that is killed anywhere in between leaves a log that the next one applies: what was acknowledged is in the log,
and the database says how far it has read. A damaged database is set aside and made again. A line of the log that cannot
be read is kept as a problem with its number; one that a killed process cut off is no loss: its caller was never told
that it is done. A reader brings the database up to the end of the log too, unless a writer that was stopped holds the
lock: then it reads what the database has, and is behind.
"""

import os
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from msgspec.structs import replace

from terminalbench.archivist.entries import (
    LogLine,
    MemoryEntry,
    UnfitEntry,
    applied,
    chained,
    missing_before,
    read_part,
    written,
)
from terminalbench.archivist.tables import MIGRATIONS, clear, find_lesson, put_entry, put_lesson
from terminalbench.errors import TbenchError, UserError
from terminalbench.experiments.project import marked_root
from terminalbench.files import FolderPath, append_lines, write_bytes
from terminalbench.index.database import is_damaged, migrate, opened, set_aside, transaction, write_ahead
from terminalbench.locks import LockHeld, changing
from terminalbench.modes import make_file
from terminalbench.records.lesson import Lesson
from terminalbench.records.values import stamp

_CACHE_KB = 64_000
"""Questions read lessons from all over the file: more of it is kept than SQLite does by default."""


type HeldUp = Callable[[Path], None]


class ProblemKind(StrEnum):
    """What is wrong with a line of the log."""

    CUT_OFF = "cut_off"
    """A process ended while it wrote: the operation was never done."""
    LOST = "lost"
    """An operation that was done cannot be read, or does not fit what went before."""
    AGAIN = "again"
    """An operation stands twice; it was applied once."""
    EDITED = "edited"
    """An operation is not as it was written; it counts as it reads now."""


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

    log = FolderPath("memory.jsonl")
    database = FolderPath("memory.db")

    @property
    def exists(self) -> bool:
        """Return whether anything was ever kept here."""
        return self.log.exists() or self.database.exists()


def memory_of(results_root: Path) -> Path:
    """Return where the memory of the project lies that a results folder belongs to."""
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

    def write(self, make: Callable[[], Sequence[MemoryEntry]]) -> list[MemoryEntry]:
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
            before = _state(self.place.log)
            append_lines(self.place.log, b"")  # closes what a killed process has cut off
            _catch_up(self.connection, self.place.log, torn=_state(self.place.log) != before)
            made = make()
            if not made:
                return []
            self._check(made)
            entries, data = self._numbered(made)
            append_lines(self.place.log, data, durable=True)
            _catch_up(self.connection, self.place.log, ours=True)
        return entries

    def _numbered(self, made: Sequence[MemoryEntry]) -> tuple[list[MemoryEntry], bytes]:
        """Return the entries as they stand in the log after those of now, and their lines."""
        seq, now = self.connection.execute("SELECT seq FROM reading").fetchone()[0], stamp(datetime.now(UTC))
        last = self.connection.execute("SELECT key FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
        after, entries, lines = last[0] if last is not None else "", [], []
        for at, entry in enumerate(made, start=1):
            entries.append(replace(entry, seq=seq + at, after=after, time=now))
            after, line = written(entries[-1])
            lines.append(line)
        return entries, b"".join(lines)

    def close(self) -> None:
        """Let go of the database."""
        self.connection.close()

    def problems(self) -> list[LogProblem]:
        """Return what of the log cannot be read."""
        rows = self.connection.execute("SELECT kind, what FROM problems ORDER BY rowid")
        return [LogProblem(ProblemKind(row["kind"]), row["what"]) for row in rows]

    def _check(self, entries: Sequence[MemoryEntry]) -> None:
        """Refuse what could not be applied, before it is in the log for good."""
        after: dict[str, Lesson] = {}

        def find(name: str) -> Lesson | None:
            return after.get(name) or find_lesson(self.connection, name)

        for entry in entries:
            try:
                changed = applied(entry, find)
            except UnfitEntry as error:
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
            hint = "it was moved aside; the next command rebuilds it from the log"
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
    seq, offset, mark, state = connection.execute("SELECT seq, offset, mark, state FROM reading").fetchone()
    if _state(log) != state and _mark(log, offset) != mark:
        hint = f"restore the log, or delete {log.with_suffix('.db').name} to accept the log as it is now"
        raise TbenchError(
            f"was changed: its first {offset} bytes differ from what {log.with_suffix('.db').name} has read",
            where=str(log),
            hint=hint,
        )
    return seq, offset


def _catch_up(connection: sqlite3.Connection, log: Path, *, torn: bool = False, ours: bool = False) -> None:
    """Apply what the log has beyond what was read of it; each entry once.

    `torn`: the end of the log was cut off until just now. `ours`: all that is new was written by this process.
    """
    if not ours:
        _follow_merge(connection, log)
        _reached(connection, log)
    seq, offset, mark, state = connection.execute("SELECT seq, offset, mark, state FROM reading").fetchone()
    now = _state(log)
    if now == state:
        return
    part = read_part(log, offset)
    with transaction(connection):
        reached = _apply(connection, part.lines, _Reading(log, offset, seq, torn=torn))
        reading = (reached, part.offset, part.mark_after(mark), now)
        connection.execute("UPDATE reading SET seq = ?, offset = ?, mark = ?, state = ?", reading)


def _follow_merge(connection: sqlite3.Connection, log: Path) -> None:
    """Forget what was read of a log that has become another one which holds all of it, as a merge leaves it."""
    offset, mark, state = connection.execute("SELECT offset, mark, state FROM reading").fetchone()
    if _state(log) == state or _mark(log, offset) == mark:
        return
    keys = {line.key for line in read_part(log).lines}
    if keys and all(row[0] in keys for row in connection.execute("SELECT key FROM entries")):
        with transaction(connection):
            clear(connection)


@dataclass(frozen=True)
class _Reading:
    """Where the reading of a log goes on: after so many bytes and entries; whether its end was torn."""

    log: Path
    offset: int
    entries: int
    torn: bool = False

    def where(self, line: LogLine) -> str:
        """Return the place of a line in the whole log."""
        with self.log.open("rb") as stream:
            return f"line {stream.read(self.offset).count(b'\n') + line.number}"


def _apply(connection: sqlite3.Connection, lines: Sequence[LogLine], start: _Reading) -> int:
    """Apply the entries of these lines, each once. Return how many entries were applied in all."""

    def is_known(key: str) -> bool:
        return connection.execute("SELECT 1 FROM entries WHERE key = ?", (key,)).fetchone() is not None

    seq = start.entries
    gaps = {line.number for line in missing_before(lines, is_known)}
    for line in lines:
        if line.number in gaps:
            _note(connection, ProblemKind.LOST, f"an entry before {start.where(line)} is missing")
        if line.entry is None:
            # The writer of the next entry did not know a line that was cut off: the operation never was done.
            cut = line.cut_off and not gaps and (start.torn or line is not lines[-1])
            said = "was cut off when its writer ended" if cut else f"cannot be read: {line.reason}"
            _note(connection, ProblemKind.CUT_OFF if cut else ProblemKind.LOST, f"{start.where(line)} {said}")
            continue
        if is_known(line.key):
            _note(connection, ProblemKind.AGAIN, f"{start.where(line)} is a repetition, and was applied only once")
            continue
        if line.edited:
            what = "was changed after it was written; the changed text is used"
            _note(connection, ProblemKind.EDITED, f"{start.where(line)} {what}")
        seq += 1
        entry = replace(line.entry, seq=seq)
        put_entry(connection, entry, line.key)
        try:
            changed = applied(entry, lambda name: find_lesson(connection, name))
        except UnfitEntry as error:
            _note(connection, ProblemKind.LOST, f"{start.where(line)} cannot be applied: {error}")
            continue
        for lesson in changed:
            put_lesson(connection, lesson)
    return seq


def _note(connection: sqlite3.Connection, kind: ProblemKind, what: str) -> None:
    connection.execute("INSERT INTO problems (kind, what) VALUES (?, ?)", (kind, what))


def _state(log: Path) -> str:
    """Return what changes with every change of the log; nothing where there is none."""
    try:
        found = log.stat()
    except OSError:
        return ""
    return f"{found.st_ino} {found.st_size} {found.st_mtime_ns}"


def _mark(log: Path, offset: int) -> str:
    """The mark of what the log holds before an offset; another one where it is shorter."""
    part = read_part(log, end=offset)
    return part.mark_after("") if part.offset == offset else "shorter"


@dataclass(frozen=True)
class Repair:
    """What the repair of a log did: entries that stay, lines that it has left out with why, and the copy of the log."""

    kept: int
    left_out: list[str]
    copy: Path


def repair(folder: Path) -> Repair | None:
    """Write the log anew with what can be read and applied of it; None where there is nothing to mend.

    The log as it was stays beside it. Entries that were edited count as they read now.
    """
    place = MemoryFolder(folder)
    if not place.log.exists():
        return None
    with changing(place.log):
        append_lines(place.log, b"")
        lines = read_part(place.log).lines
        lessons, kept, left_out, keys = dict[str, Lesson](), list[MemoryEntry](), list[str](), set[str]()
        for line in lines:
            try:
                if line.entry is None:
                    raise UnfitEntry(line.reason)
                if line.key in keys:
                    raise UnfitEntry("it appears twice")
                changed = applied(line.entry, lessons.get)
            except UnfitEntry as error:
                left_out.append(f"line {line.number}: {error}")
                continue
            keys.add(line.key)
            kept.append(line.entry)
            lessons.update((lesson.id, lesson) for lesson in changed)
        sound = not left_out and not any(line.edited for line in lines)
        if sound and not any(missing_before(lines, lambda _: False)):
            return None
        copy = place.log.with_name(f"memory.before-repair-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}.jsonl")
        write_bytes(copy, place.log.read_bytes(), mode=0o600)
        write_bytes(place.log, chained(kept), mode=0o600)
        for file in place.folder.glob(f"{place.database.name}*"):
            file.unlink()
    return Repair(len(kept), left_out, copy)
