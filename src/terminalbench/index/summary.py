"""What a list of batches shows of each: counted once, when a scan finds a change, and kept in the index."""

import sqlite3
import time
from collections import Counter, defaultdict
from pathlib import Path

import msgspec

from terminalbench.experiments.agents import agent_info
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import Plan
from terminalbench.harbor.results import ReadState
from terminalbench.index.queries import TrialRow, assign_cells, batch_rows, plan_or_none, row_outcome
from terminalbench.index.store import transaction
from terminalbench.records import Outcome


class ProfileCounts(msgspec.Struct, frozen=True, omit_defaults=True):
    """One profile of a batch: planned trials, how they ended, what they cost (superseded ones included)."""

    profile: str
    planned: int
    outcomes: dict[str, int]
    profile_id: str | None = None
    cost_usd: float | None = None
    cost_unknown: int = 0

    @property
    def passed(self) -> int:
        """Trials the verifier passed."""
        return self.outcomes.get(Outcome.PASSED, 0)

    @property
    def measured(self) -> int:
        """Trials with a verdict."""
        return self.passed + self.outcomes.get(Outcome.FAILED, 0)

    @property
    def rate(self) -> float | None:
        """Of the measured trials; None when there is none."""
        return self.passed / self.measured if self.measured else None


def summarize(connection: sqlite3.Connection, results_root: Path, key: str) -> None:
    """Count the batch `key` anew and keep the counts."""
    rows = batch_rows(connection, key)
    plan = plan_or_none(Batch(results_root / key))
    ended: dict[str, Counter[str]] = defaultdict(Counter)
    ids = {job.profile: job.profile_id for job in plan.jobs} if plan else {}
    if plan is not None:
        for cell in assign_cells(plan, rows)[0]:
            ended[cell.profile][cell.outcome.value] += 1
    else:
        for row in rows:
            ended[row.profile or "?"][row_outcome(row).value] += 1
    total = Counter[str]()
    for counts in ended.values():
        total.update(counts)
    costs = _costs(rows, _free_profiles(plan))
    known = [cost for cost, _ in costs.values() if cost is not None]
    profiles = [
        ProfileCounts(name, counts.total(), dict(counts), ids.get(name), *costs.get(name, (None, 0)))
        for name, counts in ended.items()
    ]
    measured = total[Outcome.PASSED] + total[Outcome.FAILED]
    values = (
        key,
        time.time_ns(),
        total.total() - total[Outcome.NOT_RUN],
        total[Outcome.PASSED],
        total[Outcome.FAILED],
        total.total() - measured,
        sum(known) if known else None,
        sum(unknown for _, unknown in costs.values()),
        int(any(row.trial is not None and row.trial.simulated for row in rows)),
        max((row.trial.finished_at for row in rows if row.trial and row.trial.finished_at), default=None),
        msgspec.json.encode(profiles).decode(),
    )
    with transaction(connection):
        connection.execute(f"INSERT OR REPLACE INTO summaries VALUES ({', '.join('?' * len(values))})", values)  # noqa: S608


def _free_profiles(plan: Plan | None) -> set[str]:
    """The profiles whose agent calls no model: they cost nothing, which is not unknown."""
    free = set()
    for record in plan.profiles if plan else ():
        info = agent_info(record.content.get("agent", ""))
        if info is not None and not info.model:
            free.add(record.key)
    return free


def _costs(rows: list[TrialRow], free: set[str]) -> dict[str, tuple[float | None, int]]:
    """By profile: the known cost and how many trials have an unknown one. A trial that never started costs nothing."""
    known: dict[str, float] = {}
    unknown: Counter[str] = Counter()
    for row in rows:
        name = row.profile or "?"
        if row.state == ReadState.HELD:
            continue
        if row.usage.cost_usd is None:
            unknown[name] += name not in free
        else:
            known[name] = known.get(name, 0.0) + row.usage.cost_usd
    return {name: (known.get(name), unknown[name]) for name in {*known, *unknown}}
