"""The database file: opening it, and its numbered migrations."""

import sqlite3
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from terminalbench.errors import TbenchError
from terminalbench.index.place import FILE_NAME, Place, can_be_written, into_memory, place_of

_WAIT_SEC = 30.0

MIGRATIONS: list[tuple[str, str]] = [
    (
        "001_trials",
        """
        CREATE TABLE batches (
            batch TEXT PRIMARY KEY, slug TEXT NOT NULL, number INTEGER NOT NULL, name TEXT, created_at TEXT,
            baseline TEXT, planned INTEGER, plan_stamp TEXT
        );
        CREATE TABLE trials (
            batch TEXT NOT NULL, job TEXT NOT NULL, trial TEXT NOT NULL, state TEXT NOT NULL, reason TEXT,
            stamp TEXT NOT NULL, profile TEXT, task TEXT, dataset TEXT, outcome TEXT, agent_status TEXT, reward REAL,
            error_class TEXT, error_type TEXT, error_message TEXT, agent TEXT, agent_version TEXT, model TEXT,
            started_at TEXT, finished_at TEXT, environment_sec REAL, agent_setup_sec REAL, agent_sec REAL,
            verifier_sec REAL, input_tokens INTEGER, cache_read_tokens INTEGER, cache_write_tokens INTEGER,
            output_tokens INTEGER, cost_usd REAL, usage_source TEXT, cost_source TEXT, simulated INTEGER,
            suspect TEXT, task_digest TEXT, superseded INTEGER NOT NULL DEFAULT 0, record BLOB,
            PRIMARY KEY (batch, job, trial)
        );
        CREATE INDEX trials_by_cell ON trials (batch, profile, dataset, task);
        CREATE INDEX trials_by_name ON trials (trial);
        """,
    ),
    (
        "002_findings",
        """
        CREATE TABLE findings (
            batch TEXT NOT NULL, job TEXT NOT NULL, trial TEXT NOT NULL, analyzer TEXT NOT NULL, version TEXT NOT NULL,
            stamp TEXT NOT NULL, found BLOB NOT NULL,
            PRIMARY KEY (batch, job, trial, analyzer)
        ) WITHOUT ROWID;
        """,
    ),
    (
        "003_summaries",
        """
        CREATE TABLE summaries (
            batch TEXT PRIMARY KEY, version INTEGER NOT NULL, trials INTEGER NOT NULL, passed INTEGER NOT NULL,
            failed INTEGER NOT NULL, not_measured INTEGER NOT NULL, cost_usd REAL, cost_unknown INTEGER NOT NULL,
            simulated INTEGER NOT NULL, last_at TEXT, profiles TEXT NOT NULL
        );
        CREATE INDEX trials_by_time ON trials (started_at);
        CREATE INDEX trials_by_outcome ON trials (outcome, started_at);
        CREATE INDEX trials_by_task ON trials (task, started_at);
        CREATE INDEX trials_by_profile ON trials (profile, started_at);
        CREATE INDEX trials_by_error ON trials (error_class, started_at);
        CREATE INDEX trials_by_words ON trials (trial, error_message, model);
        """,
    ),
    (
        "004_counts",
        """
        ALTER TABLE trials ADD COLUMN counts INTEGER;
        ALTER TABLE trials ADD COLUMN attempt INTEGER;
        DELETE FROM summaries;
        """,
    ),
]
"""Applied once each, in order, and recorded. Never edit one that was released; add another."""


class IndexFixed(TbenchError):
    """Something has to be written to an index that is only read. `open_index(root, write=True)` has one to write to."""


@contextmanager
def open_index(results_root: Path, *, write: bool = False, in_root: bool = False) -> Generator[sqlite3.Connection]:
    """The index of a results root, made or brought up to date. A file that is no database is set aside.

    Where the root cannot be written it lies elsewhere, or is one that raises IndexFixed when something is written;
    with `write` it can be written. With `in_root` it is the one in the root, or an error.
    """
    if in_root and not can_be_written(results_root):
        raise TbenchError("the index cannot be written", where=str(results_root / FILE_NAME), hint=_why(results_root))
    results_root.mkdir(parents=True, exist_ok=True)
    place = index_place(results_root, write=write)
    connection = _opened(place, reading=True) if place.fixed else _made(results_root, place)
    with closing(connection):
        try:
            yield connection
        except sqlite3.OperationalError as error:
            raise _unusable(place, error) from error


def open_for_reading(results_root: Path, *, timeout_sec: float = 5.0) -> sqlite3.Connection:
    """A connection that cannot write. The caller closes it; any thread may use it. The index is made if need be."""
    with open_index(results_root):
        pass
    return _opened(index_place(results_root), reading=True, timeout_sec=timeout_sec)


def index_place(results_root: Path, *, write: bool = False) -> Place:
    """Where the index of a root lies now."""
    return place_of(results_root, [name for name, _ in MIGRATIONS], write=write)


def _why(results_root: Path) -> str:
    if (results_root / FILE_NAME).is_dir():
        return "it is a folder; remove it, the index comes back"
    return "the results folder cannot be written"


def _made(results_root: Path, place: Place) -> sqlite3.Connection:
    """The database of a place, with every table; one that is damaged is set aside first."""
    path = place.file
    try:
        return _connect(place)
    except sqlite3.DatabaseError as error:
        damaged = error.sqlite_errorcode in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)
        if not damaged and path is not None and path.parent != results_root.absolute():
            return _connect(into_memory(results_root))
        if not damaged or path is None or not path.is_file():
            raise _unusable(place, error) from error
    for suffix in ("", "-wal", "-shm"):
        found = path.with_name(path.name + suffix)
        if found.exists():
            found.replace(path.with_name(f"{path.name}{suffix}.damaged"))
    return _connect(place)


def _unusable(place: Place, error: sqlite3.Error) -> TbenchError:
    hints = {
        sqlite3.SQLITE_ERROR: "another version of terminalbench may have made it; delete it, it comes back",
        sqlite3.SQLITE_FULL: "free some space; trials are not touched by this",
        sqlite3.SQLITE_IOERR: "is the disk full? trials are not touched by this",
        sqlite3.SQLITE_READONLY: "the results folder cannot be written",
        sqlite3.SQLITE_CANTOPEN: "can the results folder be written?",
        sqlite3.SQLITE_BUSY: "another process has been writing to it for long; try again",
    }
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return TbenchError(f"the index cannot be used: {error}", where=place.name, hint=hints.get(code))


def _opened(place: Place, *, reading: bool, timeout_sec: float = _WAIT_SEC) -> sqlite3.Connection:
    connection = sqlite3.connect(
        place.uri(reading=reading), uri=True, timeout=timeout_sec, isolation_level=None, check_same_thread=False
    )
    connection.row_factory = sqlite3.Row
    if reading:
        connection.execute("PRAGMA query_only = ON")
    return connection


def _connect(place: Place) -> sqlite3.Connection:
    connection = _opened(place, reading=False)
    try:
        _write_ahead(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        _migrate(connection)
    except (sqlite3.Error, TbenchError):
        connection.close()
        raise
    return connection


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Readers and writers side by side. While another makes the file, SQLite refuses at once instead of waiting."""
    deadline = time.monotonic() + _WAIT_SEC
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(0.01)


def _migrate(connection: sqlite3.Connection) -> None:
    if not _waiting(connection):
        return  # without a lock: a reader never waits for a writer
    with transaction(connection):
        connection.execute("CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY)")
        done = {row[0] for row in connection.execute("SELECT name FROM migrations")}
        for name, script in MIGRATIONS:
            if name in done:
                continue
            for statement in filter(str.strip, script.split(";")):
                connection.execute(statement)
            connection.execute("INSERT INTO migrations VALUES (?)", (name,))


def _waiting(connection: sqlite3.Connection) -> bool:
    """Whether there is a migration to apply."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'migrations'").fetchone() is None:
        return True
    done = {row[0] for row in connection.execute("SELECT name FROM migrations")}
    return not done.issuperset(name for name, _ in MIGRATIONS)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Generator[None]:
    """All or nothing; waits its turn behind other writers."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        kind = IndexFixed if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_READONLY else TbenchError
        raise kind(f"the index cannot be written: {error}") from error
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
