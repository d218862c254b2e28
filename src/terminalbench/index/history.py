"""What earlier trials took, from an index that exists: read only, nothing is made, scanned or brought up to date."""

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec

from terminalbench.errors import TbenchError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import Plan, ProfileRecord
from terminalbench.files import read_json
from terminalbench.index.store import FILE_NAME
from terminalbench.records import Outcome, elapsed_sec

_MOST = 20_000
_QUERY = """
    SELECT batch, job, trial, profile, dataset, task, outcome, started_at, finished_at, cost_usd, simulated, superseded
    FROM trials WHERE started_at IS NOT NULL ORDER BY started_at DESC LIMIT ?
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


def past_trials(results_root: Path) -> list[PastTrial]:
    """The newest trials of every batch in the index, up to 20,000; none without a readable index."""
    path = results_root / FILE_NAME
    if not path.is_file():
        return []
    # A database in WAL mode needs its side files to be opened; where there are none, nothing is being written.
    mode = "mode=ro" if path.with_name(f"{FILE_NAME}-wal").exists() else "mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True, timeout=5)) as connection:
            connection.row_factory = sqlite3.Row
            rows = connection.execute(_QUERY, (_MOST,)).fetchall()
    except sqlite3.Error:
        return []
    plans = {key: _plan(results_root / key) for key in {row["batch"] for row in rows}}
    return [trial for row in rows if (trial := _trial(row, plans[row["batch"]])) is not None]


def _plan(folder: Path) -> Plan | None:
    try:
        return read_json(Batch(folder).plan_json, Plan)
    except (OSError, TbenchError):
        return None


def _trial(row: sqlite3.Row, plan: Plan | None) -> PastTrial | None:
    profile: ProfileRecord | None = next((p for p in plan.profiles if p.key == row["profile"]), None) if plan else None
    if plan is None or profile is None:
        return None
    return PastTrial(
        profile_id=profile.id,
        agent=profile.content.get("agent", ""),
        model=profile.content.get("model"),
        label=row["dataset"],
        task=row["task"],
        outcome=Outcome(row["outcome"]) if row["outcome"] is not None else None,
        seconds=elapsed_sec(row["started_at"], row["finished_at"]),
        cost_usd=row["cost_usd"],
        superseded=bool(row["superseded"]) or f"{row['job']}/{row['trial']}" in plan.superseded,
        simulated=bool(row["simulated"]),
    )
