"""Questions in SQL to the index: reading only, bounded in rows, time and memory; errors say what there is."""

import re
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from terminalbench.errors import TbenchError, UserError, did_you_mean
from terminalbench.index.results import FINDINGS, Results
from terminalbench.index.store import open_for_reading
from terminalbench.text.numbers import duration

_ALLOWED = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}
_HIDDEN = ("migrations", "sqlite_")
TIMEOUT_SEC = 30.0
_LOOK_EVERY = 10_000
"""Steps of SQLite's machine between two looks at the clock: about a millisecond."""
_LONGEST_VALUE = 64 << 20
_MOST_MEMORY = 512 << 20


@dataclass(frozen=True)
class QueryResult:
    """The rows of a query; `more` says that the limit cut it."""

    columns: list[str]
    rows: list[tuple[Any, ...]]
    more: bool

    def records(self) -> list[dict[str, Any]]:
        """The rows by column name; names that come twice are numbered."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def ask(results_root: Path, sql: str, limit: int | None = 1000, timeout_sec: float | None = TIMEOUT_SEC) -> QueryResult:
    """Return what `sql` finds. Only reading is allowed; what takes too long or too much is ended. Scan first."""
    with closing(open_for_reading(results_root, timeout_sec=30.0)) as connection:
        connection.row_factory = None
        connection.text_factory = lambda data: data.decode(errors="replace")
        connection.execute("PRAGMA temp_store = MEMORY")  # what is sorted and collected is bounded with the memory
        if re.search(r"\bfindings\b", sql, re.IGNORECASE):
            _load_findings(connection, results_root)
        tables = _tables(connection)
        _bound(connection, timeout_sec)
        connection.set_authorizer(_only_reading)
        try:
            cursor = connection.execute(sql)
            found = _fetched(cursor, limit)
        except MemoryError as error:
            raise TbenchError(_TOO_MUCH, where="SQL", hint=_LESS) from error
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise _explained(str(error), tables) from error
            took = f"was stopped after {duration(timeout_sec)}"
            raise TbenchError(took, where="SQL", hint=f"--timeout sets the limit; {_LESS}") from error
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise _explained(str(error), tables) from error
        if cursor.description is None:
            raise UserError("is not a query: it returns no rows", where="SQL", hint="start with SELECT")
        rows = found if limit is None else found[:limit]
        return QueryResult(_unique([column[0] for column in cursor.description]), rows, len(rows) < len(found))


_TOO_MUCH = f"needs more than {_MOST_MEMORY >> 20} MB of memory"
_LESS = "check that recursions end and that joins have conditions"


def _bound(connection: sqlite3.Connection, timeout_sec: float | None) -> None:
    """Let no question take more time or memory."""
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
    connection.execute(f"PRAGMA hard_heap_limit = {_MOST_MEMORY}")  # of this process: only ever a bound for questions
    if timeout_sec is not None:
        end = time.monotonic() + timeout_sec
        connection.set_progress_handler(lambda: time.monotonic() > end, _LOOK_EVERY)


def _fetched(cursor: sqlite3.Cursor, limit: int | None) -> list[tuple[Any, ...]]:
    """The rows, one more than the limit if there are more."""
    found: list[tuple[Any, ...]] = []
    size = 0
    for row in cursor:
        found.append(row)
        size += 64 + sum(64 + len(value) for value in row if isinstance(value, str | bytes))
        if size > _MOST_MEMORY:
            raise MemoryError
        if limit is not None and len(found) > limit:
            break
    return found


def _load_findings(connection: sqlite3.Connection, results_root: Path) -> None:
    """The findings of every analysed batch as a table of this connection; it hides the packed ones of the index."""
    names = ", ".join(FINDINGS)
    rows = Results(results_root).findings()
    connection.execute("PRAGMA query_only = OFF")
    connection.execute("BEGIN")
    connection.execute(f"CREATE TEMP TABLE findings ({names})")
    connection.executemany(
        f"INSERT INTO temp.findings ({names}) VALUES ({', '.join('?' * len(FINDINGS))})",  # noqa: S608  our own names
        ([row[name] for name in FINDINGS] for row in rows),
    )
    connection.commit()
    connection.execute("PRAGMA query_only = ON")


def _only_reading(action: int, *_details: object) -> int:
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _tables(connection: sqlite3.Connection) -> dict[str, list[str]]:
    query = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name"
    names = [row[0] for row in connection.execute(query) if not row[0].startswith(_HIDDEN)]
    tables = {name: [column[1] for column in connection.execute(f'PRAGMA table_info("{name}")')] for name in names}
    return tables | {"findings": list(FINDINGS)}


def _explained(message: str, tables: dict[str, list[str]]) -> UserError:
    hint = None
    if found := re.search(r"no such table: (?:\w+\.)?(\S+)", message):
        hint = did_you_mean(found[1], list(tables))
    elif found := re.search(r"no such column: (?:\w+\.)?(\S+)", message):
        hint = did_you_mean(found[1], sorted({name for columns in tables.values() for name in columns}), limit=60)
    elif "not authorized" in message or "prohibited" in message or "readonly" in message:
        message, hint = "the index can only be read", "use SELECT; the index is a cache of what is on disk"
    elif "one statement at a time" in message:
        message, hint = "is more than one statement", "give one statement at a time"
    return UserError(message, where="SQL", hint=hint)


def _unique(names: list[str]) -> list[str]:
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return unique
