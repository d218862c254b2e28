"""A SQLite file of ours: opening it, its numbered migrations, transactions, and setting a damaged one aside."""

import sqlite3
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from terminalbench.errors import TbenchError

SIDE_FILES = ("", "-wal", "-shm")
"""What SQLite has beside a file, the file included."""
WAIT_SEC = 30.0

type Migrations = Sequence[tuple[str, str]]
"""Names and scripts. Never edit one that was released; add another. A script is split at its semicolons."""


def opened(uri: str, timeout_sec: float = WAIT_SEC) -> sqlite3.Connection:
    """A connection whose rows have names, which any thread may use, and which opens no transaction of its own."""
    connection = sqlite3.connect(uri, uri=True, timeout=timeout_sec, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    return connection


def write_ahead(connection: sqlite3.Connection) -> None:
    """Readers and writers side by side. While another makes the file, SQLite refuses at once instead of waiting."""
    deadline = time.monotonic() + WAIT_SEC
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(0.01)


def migrate(connection: sqlite3.Connection, migrations: Migrations) -> None:
    """Apply each migration once, in order and in one transaction, and record it."""
    if not _waiting(connection, migrations):
        return  # without a lock: a reader never waits for a writer
    with transaction(connection):
        connection.execute("CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY)")
        done = {row[0] for row in connection.execute("SELECT name FROM migrations")}
        for name, script in migrations:
            if name in done:
                continue
            for statement in filter(str.strip, script.split(";")):
                connection.execute(statement)
            connection.execute("INSERT INTO migrations VALUES (?)", (name,))


def _waiting(connection: sqlite3.Connection, migrations: Migrations) -> bool:
    """Return whether there is a migration to apply."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'migrations'").fetchone() is None:
        return True
    done = {row[0] for row in connection.execute("SELECT name FROM migrations")}
    return not done.issuperset(name for name, _ in migrations)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Generator[None]:
    """All or nothing; waits its turn behind other writers."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        raise TbenchError(f"the database cannot be written: {error}") from error
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def is_damaged(error: sqlite3.DatabaseError) -> bool:
    """Return whether SQLite says that a file is no database, or a broken one."""
    return getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


def set_aside(file: Path) -> None:
    """Give a damaged database, and what is beside it, another name."""
    for suffix in SIDE_FILES:
        found = file.with_name(file.name + suffix)
        if found.exists():
            found.replace(file.with_name(f"{found.name}.damaged"))
