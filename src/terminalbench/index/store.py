"""The database file: where it lies, opening it, and its numbered migrations.

It lies in the results root. A root that cannot be written (an archive, another user's folder, a read-only or full
disk) has its index in this user's cache folder; it begins as a copy of the one in the root, if there is one: a scan
reads again only what has changed since. Where that folder cannot be written either, it is in the memory of the process.

A folder that holds no batch is not written, and nothing is kept of it elsewhere: it may be any folder, and a file of
that name in it another program's. Its index is in memory too.
"""

import errno
import hashlib
import logging
import os
import shutil
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path

from terminalbench.errors import TbenchError
from terminalbench.index.database import SIDE_FILES, is_damaged, migrate, opened, set_aside, write_ahead
from terminalbench.index.places import holds_batch
from terminalbench.modes import make_file, make_own_folder

FILE_NAME = "index.db"
_LEAST_BYTES = 1 << 20
"""A disk with less than so much room is full: an index that is there may grow by as much."""

MIGRATIONS: list[tuple[str, str]] = [
    (
        "019_schema",
        """
        DROP TABLE IF EXISTS batches;
        DROP TABLE IF EXISTS trials;
        DROP TABLE IF EXISTS findings;
        DROP TABLE IF EXISTS summaries;
        DROP TABLE IF EXISTS profiles;
        DROP TABLE IF EXISTS treatments;
        DROP TABLE IF EXISTS exposures;
        CREATE TABLE batches (
            batch TEXT PRIMARY KEY, slug TEXT NOT NULL, number INTEGER NOT NULL, name TEXT, created_at TEXT,
            baseline TEXT, planned INTEGER, plan_stamp TEXT, labels TEXT, stamp TEXT, budget_usd REAL
        );
        CREATE TABLE trials (
            batch TEXT NOT NULL, job TEXT NOT NULL, trial TEXT NOT NULL, state TEXT NOT NULL, reason TEXT,
            stamp TEXT NOT NULL, profile TEXT, task TEXT, dataset TEXT, outcome TEXT, agent_status TEXT, reward REAL,
            error_class TEXT, error_type TEXT, error_message TEXT, agent TEXT, agent_version TEXT, model TEXT,
            started_at TEXT, finished_at TEXT, environment_sec REAL, agent_setup_sec REAL, agent_sec REAL,
            verifier_sec REAL, input_tokens INTEGER, cache_read_tokens INTEGER, cache_write_tokens INTEGER,
            output_tokens INTEGER, cost_usd REAL, usage_source TEXT, cost_source TEXT, simulated INTEGER,
            suspect TEXT, task_digest TEXT, superseded INTEGER NOT NULL DEFAULT 0, record BLOB, counts INTEGER,
            attempt INTEGER, profile_id TEXT, family TEXT, labels TEXT, cli_version TEXT, session_model TEXT,
            permission_mode TEXT, tools TEXT, mcp_state TEXT, treatment TEXT, copy INTEGER NOT NULL DEFAULT 0,
            connections INTEGER, refused INTEGER, hosts TEXT, policy_id TEXT, agent_steps INTEGER, all_tokens INTEGER,
            reader INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (batch, job, trial)
        );
        CREATE INDEX trials_by_cell ON trials (batch, profile, dataset, task);
        CREATE INDEX trials_by_name ON trials (trial);
        CREATE INDEX trials_by_time ON trials (started_at);
        CREATE INDEX trials_by_outcome ON trials (outcome, started_at);
        CREATE INDEX trials_by_task ON trials (task, started_at);
        CREATE INDEX trials_by_profile ON trials (profile, started_at);
        CREATE INDEX trials_by_error ON trials (error_class, started_at);
        CREATE INDEX trials_by_words ON trials (trial, error_message, model);
        CREATE INDEX trials_by_profile_id ON trials (profile_id, started_at);
        CREATE TABLE findings (
            batch TEXT NOT NULL, job TEXT NOT NULL, trial TEXT NOT NULL, analyzer TEXT NOT NULL, version TEXT NOT NULL,
            stamp TEXT NOT NULL, found BLOB NOT NULL,
            PRIMARY KEY (batch, job, trial, analyzer)
        ) WITHOUT ROWID;
        CREATE TABLE summaries (
            batch TEXT PRIMARY KEY, version INTEGER NOT NULL, trials INTEGER NOT NULL, passed INTEGER NOT NULL,
            failed INTEGER NOT NULL, not_measured INTEGER NOT NULL, cost_usd REAL, cost_unknown INTEGER NOT NULL,
            simulated INTEGER NOT NULL, last_at TEXT, profiles TEXT NOT NULL
        );
        CREATE TABLE profiles (id TEXT PRIMARY KEY, agent TEXT, model TEXT);
        CREATE TABLE treatments (id TEXT PRIMARY KEY, content TEXT NOT NULL);
        CREATE TABLE exposures (
            batch TEXT NOT NULL, job TEXT NOT NULL, trial TEXT NOT NULL, lesson TEXT NOT NULL, rank INTEGER NOT NULL,
            mode TEXT NOT NULL, snapshot TEXT NOT NULL, propensity REAL NOT NULL, shown INTEGER NOT NULL,
            characters INTEGER NOT NULL, own INTEGER NOT NULL,
            PRIMARY KEY (batch, job, trial, lesson)
        ) WITHOUT ROWID;
        CREATE INDEX exposures_by_lesson ON exposures (lesson);
        """,
    ),
]
"""Applied once each, in order, and recorded. The first makes every table anew: the next scan fills an index that an
earlier version has left. Never edit one that was released; add another. One that empties `stamp` has the trials read
anew by the next scan. Rules that decide a trial need none: `harbor.read.READER`.
"""


@contextmanager
def open_index(results_root: Path, *, in_root: bool = False) -> Generator[sqlite3.Connection]:
    """The index of a results root, made or brought up to date. A file that is no database is set aside.

    With `in_root` it is the one in the root, or an error.
    """
    if in_root and holds_batch(results_root) and not _can_be_written(results_root):
        raise TbenchError("the index cannot be written", where=str(results_root / FILE_NAME), hint=_why(results_root))
    file = index_file(results_root)
    with _opened_at(file, results_root) as connection:
        yield connection


@contextmanager
def _opened_at(file: Path | None, results_root: Path) -> Generator[sqlite3.Connection]:
    """The index in a file or in memory, with every table."""
    made = _made(file) if file is not None else _connect(_in_memory(results_root.resolve()))
    with closing(made) as connection:
        try:
            yield connection
        except sqlite3.OperationalError as error:
            raise _unusable(file, error) from error


def open_for_reading(results_root: Path, *, timeout_sec: float = 5.0) -> sqlite3.Connection:
    """A connection that cannot write. The caller closes it; any thread may use it. The index is made if need be."""
    file = index_file(results_root)  # once: the first batch of the folder may come meanwhile
    with _opened_at(file, results_root):
        uri = _in_memory(results_root.resolve()) if file is None else f"{file.as_uri()}?mode=ro"
        connection = opened(uri, timeout_sec)
        connection.execute("PRAGMA query_only = ON")
        return connection


def index_file(results_root: Path) -> Path | None:
    """The file of the index now: in the root, or elsewhere where that cannot be written; None is in memory."""
    if not holds_batch(results_root):
        return None
    if _can_be_written(results_root):
        return (results_root / FILE_NAME).absolute()
    return _elsewhere(results_root.resolve())


def index_mark(results_root: Path) -> tuple[object, ...]:
    """Changes when the index was deleted or replaced, or lies elsewhere now."""
    file = index_file(results_root)
    try:
        return (file, file.stat().st_ino if file is not None else None)
    except OSError:
        return (file, None)


def _can_be_written(results_root: Path) -> bool:
    """Return whether the index can lie in the root, which is there."""
    file = results_root / FILE_NAME
    if not os.access(results_root, os.W_OK | os.X_OK) or file.is_dir() or is_full(results_root):
        return False
    beside = [file.with_name(FILE_NAME + suffix) for suffix in SIDE_FILES]
    return not any(_is_shut(path) and _is_shut(path) for path in beside)  # twice: SQLite removes some at any moment


def is_full(folder: Path) -> bool:
    """Return whether the disk of a folder has no room for an index that grows."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return False
    return usage.total > 0 and usage.free < _LEAST_BYTES


def _is_shut(path: Path) -> bool:
    return path.exists() and not os.access(path, os.R_OK | os.W_OK)


def _why(results_root: Path) -> str:
    if (results_root / FILE_NAME).is_dir():
        return f"{FILE_NAME} is a folder; remove it, and the index is rebuilt"
    if is_full(results_root):
        return "its disk is full"
    return "the results folder cannot be written"


@cache
def _elsewhere(root: Path) -> Path | None:
    """A file of this user's for this root and this version of the tables; None where it cannot be. Said once."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    file = None
    try:
        home = Path(base) if base.startswith("/") else Path.home() / ".cache"
        folder = home / "terminalbench" / "index" / f"{_digest(root)}-{len(MIGRATIONS)}"
        for place in (folder.parent.parent, folder.parent, folder):
            make_own_folder(place)
        if is_full(folder):
            raise OSError(errno.ENOSPC, "its disk is full")
        if not (folder / FILE_NAME).exists():
            make_file(folder / FILE_NAME)
            with closing(opened(f"{(folder / FILE_NAME).as_uri()}?mode=rwc")) as connection:
                _begin(connection, root)
        _made(folder / FILE_NAME).close()
        file = folder / FILE_NAME
    except (OSError, RuntimeError, TbenchError):
        pass  # no folder of this user's can be written: memory is left
    where = f"in {file.parent}" if file is not None else "in memory, for this process only"
    logging.getLogger(__name__).warning("%s: %s; its index is kept %s", root, _why(root), where)
    return file


@cache
def _in_memory(root: Path) -> str:
    """Return what SQLite opens. The database lives as long as a connection is open: one is, while the process lives."""
    uri = f"file:/tbench-{_digest(root)}?vfs=memdb"
    _kept_open(uri)
    return uri


@cache
def _kept_open(uri: str) -> sqlite3.Connection:
    return opened(uri)


def _begin(connection: sqlite3.Connection, root: Path) -> None:
    """Copy the index that lies in the root into an empty one. Without one that can be read whole, it stays empty."""
    own = root / FILE_NAME
    log = own.with_name(f"{FILE_NAME}-wal")
    if not own.is_file() or (log.exists() and log.stat().st_size):
        return  # what stands in the log alone would be missing
    try:
        with closing(opened(f"{own.as_uri()}?mode=ro&immutable=1")) as found:
            found.backup(connection)
    except sqlite3.Error as error:
        logging.getLogger(__name__).info("%s is not used: %s", own, error)


def _digest(root: Path) -> str:
    return hashlib.blake2b(os.fsencode(root), digest_size=12).hexdigest()


def _made(file: Path) -> sqlite3.Connection:
    """The database in a file, with every table; one that is damaged is set aside first."""
    try:
        make_file(file)
    except OSError:  # SQLite says what is wrong, in its own words
        pass
    uri = f"{file.as_uri()}?mode=rwc"
    try:
        return _connect(uri)
    except sqlite3.DatabaseError as error:
        if not is_damaged(error) or not file.is_file():
            raise _unusable(file, error) from error
    set_aside(file)
    return _connect(uri)


def _unusable(file: Path | None, error: sqlite3.Error) -> TbenchError:
    hints = {
        sqlite3.SQLITE_ERROR: "it may come from another version of terminalbench; delete it, and it is rebuilt",
        sqlite3.SQLITE_FULL: "free some space; the trials themselves are not affected",
        sqlite3.SQLITE_IOERR: "check whether the disk is full; the trials themselves are not affected",
        sqlite3.SQLITE_READONLY: "the results folder cannot be written",
        sqlite3.SQLITE_CANTOPEN: "check whether the results folder can be written",
        sqlite3.SQLITE_BUSY: "another process has been writing to it for a long time; try again",
    }
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return TbenchError(f"the index cannot be used: {error}", where=str(file or "in memory"), hint=hints.get(code))


def _connect(uri: str) -> sqlite3.Connection:
    connection = opened(uri)
    try:
        write_ahead(connection)
        migrate(connection, MIGRATIONS)
    except (sqlite3.Error, TbenchError):
        connection.close()
        raise
    return connection
