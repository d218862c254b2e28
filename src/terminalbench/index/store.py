"""The database file: opening it, and its numbered migrations."""

import sqlite3
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from terminalbench.errors import TbenchError

_WAIT_SEC = 30.0
FILE_NAME = "index.db"

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


@contextmanager
def open_index(results_root: Path) -> Generator[sqlite3.Connection]:
    """The index of a results root, made or brought up to date. A file that is no database is set aside."""
    results_root.mkdir(parents=True, exist_ok=True)
    path = results_root / FILE_NAME
    try:
        connection = _connect(path)
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode not in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT) or not path.is_file():
            raise _unusable(path, error) from error
        for suffix in ("", "-wal", "-shm"):
            damaged = path.with_name(path.name + suffix)
            if damaged.exists():
                damaged.replace(path.with_name(f"{path.name}{suffix}.damaged"))
        connection = _connect(path)
    with closing(connection):
        try:
            yield connection
        except sqlite3.OperationalError as error:
            raise _unusable(path, error) from error


def _unusable(path: Path, error: sqlite3.Error) -> TbenchError:
    hints = {
        sqlite3.SQLITE_FULL: "free some space; trials are not touched by this",
        sqlite3.SQLITE_IOERR: "is the disk full? trials are not touched by this",
        sqlite3.SQLITE_READONLY: "the results folder cannot be written",
        sqlite3.SQLITE_CANTOPEN: "can the results folder be written?",
        sqlite3.SQLITE_BUSY: "another process has been writing to it for long; try again",
    }
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return TbenchError(f"the index cannot be used: {error}", where=str(path), hint=hints.get(code))


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_WAIT_SEC, isolation_level=None)
    try:
        connection.row_factory = sqlite3.Row
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
        raise TbenchError(f"the index cannot be written: {error}") from error
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
