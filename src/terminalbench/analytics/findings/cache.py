"""Findings kept in the index by (trial, analyzer, version), with a stamp of the files they were made from.

The cache is part of the index: delete it and it comes back, at the price of reading the trajectories again.
"""

import hashlib
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.analytics import atif
from terminalbench.analytics.findings.shell import TABLES
from terminalbench.index.database import transaction
from terminalbench.records.trial import Finding

_CHUNK = 200
_INSERT = (
    "INSERT OR REPLACE INTO findings (batch, job, trial, analyzer, version, stamp, found) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_decoder = msgspec.msgpack.Decoder(list[tuple[str, Any, str | None, list[int]]])


@dataclass(frozen=True, slots=True)
class CachedFindings:
    """What the cache holds of one trial and one analyzer."""

    version: str
    stamp: str
    found: bytes


@dataclass
class FindingsCache:
    """The findings of one batch in an open index."""

    connection: sqlite3.Connection
    batch: str
    waiting: list[tuple[Any, ...]] = field(default_factory=list)

    def kept(self, job: str, trial: str) -> dict[str, CachedFindings]:
        """Return what is kept of a trial, by analyzer."""
        query = "SELECT analyzer, version, stamp, found FROM findings WHERE batch = ? AND job = ? AND trial = ?"
        rows = self.connection.execute(query, (self.batch, job, trial))
        return {row["analyzer"]: CachedFindings(row["version"], row["stamp"], row["found"]) for row in rows}

    def read(self, job: str, trial: str, analyzers: Iterable[str]) -> list[Finding]:
        """The findings of a trial, in the order of the analyzers."""
        self.flush()
        kept = self.kept(job, trial)
        found = [(name, kept[name].version, _decoder.decode(kept[name].found)) for name in analyzers if name in kept]
        return [Finding(f"{job}/{trial}", name, version, *item) for name, version, items in found for item in items]

    def put(self, job: str, trial: str, analyzer: str, version: str, stamp: str, found: list[Finding]) -> None:
        """Keep the findings of one analyzer about one trial."""
        data = msgspec.msgpack.encode([(f.name, f.value, f.reason, f.steps) for f in found])
        self.waiting.append((self.batch, job, trial, analyzer, version, stamp, data))
        if len(self.waiting) >= _CHUNK:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        if self.waiting:
            with transaction(self.connection):
                self.connection.executemany(_INSERT, self.waiting)
            self.waiting.clear()

    def forget_gone(self) -> None:
        """Drop what is kept of trials that the index no longer has."""
        with transaction(self.connection):
            self.connection.execute(
                "DELETE FROM findings WHERE batch = ? AND NOT EXISTS "
                "(SELECT 1 FROM trials AS t WHERE t.batch = findings.batch AND t.job = findings.job "
                "AND t.trial = findings.trial)",
                (self.batch,),
            )


@cache
def rules_digest() -> str:
    """Changes when a taxonomy or a module of the rules does: what was found by other rules is found again."""
    rules = (Path(atif.__file__), *sorted(TABLES.parent.rglob("*.py")), *sorted(TABLES.glob("*.toml")))
    data = b"".join(path.read_bytes() for path in rules)
    return hashlib.blake2b(data, digest_size=8).hexdigest()
