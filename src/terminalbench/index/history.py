"""What earlier trials took, from an index that exists: nothing is made or scanned."""

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec

from terminalbench.errors import TbenchError
from terminalbench.experiments.plan import Plan
from terminalbench.index.store import FILE_NAME, migrated_copy
from terminalbench.records import CLOCK_JUMPED, Outcome, elapsed_sec

_MOST = 2000
_SAME = "SELECT 1 FROM trials WHERE profile_id = ? LIMIT 1"
_ALIKE = "SELECT id FROM profiles WHERE agent = ? AND model IS ?"
_TRIALS = """
    SELECT trials.rowid, profile_id, p.agent, p.model, dataset, task, outcome, started_at,
           CASE WHEN suspect LIKE '%{jumped}%' THEN NULL ELSE finished_at END, cost_usd,
           coalesce(NOT counts, superseded), simulated
    FROM trials JOIN profiles p ON p.id = profile_id
    WHERE profile_id IN ({ids}) AND started_at IS NOT NULL ORDER BY started_at DESC LIMIT ?
"""


class PastTrial(msgspec.Struct, frozen=True):
    """One earlier trial: of which treatment, of which task (by the label its dataset had), and what it took."""

    profile_id: str
    agent: str
    model: str | None
    label: str | None
    task: str | None
    outcome: Outcome | None
    seconds: float | None
    cost_usd: float | None
    superseded: bool
    simulated: bool

    @property
    def measured(self) -> bool:
        """Whether the verifier's word counts."""
        return self.outcome in (Outcome.PASSED, Outcome.FAILED)


def past_trials(results_root: Path, plan: Plan) -> list[PastTrial]:
    """The newest trials of each planned profile, up to 2,000; of profiles alike (agent, model) where it has none.

    None without a readable index; one of an earlier version is brought up to date in memory, and stays as it is.
    """
    path = results_root / FILE_NAME
    if not path.is_file():
        return []
    # A database in WAL mode needs its side files to be opened; where there are none, nothing is being written.
    beside = all(path.with_name(f"{FILE_NAME}{suffix}").exists() for suffix in ("-wal", "-shm"))
    mode = "mode=ro" if beside else "mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True, timeout=5)) as connection:
            try:
                return _trials(connection, plan)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:  # no such table or column
                    raise
            with closing(migrated_copy(connection, results_root)) as copy:
                return _trials(copy, plan)
    except (sqlite3.Error, TbenchError):
        return []


def _trials(connection: sqlite3.Connection, plan: Plan) -> list[PastTrial]:
    groups: set[tuple[str, ...]] = set()
    for profile in plan.profiles:
        if connection.execute(_SAME, (profile.id,)).fetchone() is not None:
            groups.add((profile.id,))
        else:
            alike = (profile.content.get("agent"), profile.content.get("model"))
            groups.add(tuple(row[0] for row in connection.execute(_ALIKE, alike)))
    found: dict[int, PastTrial] = {}
    for ids in groups:
        query = _TRIALS.format(ids=", ".join("?" * len(ids)), jumped=CLOCK_JUMPED)
        found |= {row: _trial(*values) for row, *values in connection.execute(query, (*ids, _MOST))}
    return list(found.values())


def _trial(
    profile_id: str, agent: str, model: str | None, label: str | None, task: str | None, outcome: str | None,
    started_at: str, finished_at: str | None, cost_usd: float | None, superseded: int, simulated: int | None,
) -> PastTrial:  # fmt: skip
    ended = Outcome(outcome) if outcome is not None else None
    seconds = elapsed_sec(started_at, finished_at)
    return PastTrial(profile_id, agent, model, label, task, ended, seconds, cost_usd, bool(superseded), bool(simulated))
