"""The plan of a batch on its trials: profile and policy id, family of the task, labels. Kept beside each.

Filled when a trial is read, and when a plan has changed: no result is read again for that.
"""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from terminalbench.errors import TbenchError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import HARBOR, Plan
from terminalbench.json_files import read_json


@dataclass(frozen=True)
class PlanFacts:
    """The facts by profile, and by the label of a dataset and a task. `labels` is JSON; None: no plan says."""

    profile_ids: Mapping[str, str]
    policy_ids: Mapping[str, str]
    families: Mapping[tuple[str, str], str]
    labels: str | None

    @classmethod
    def of(cls, plan: Plan | None) -> "PlanFacts":
        """Those of a plan; of none, nothing is known."""
        if plan is None:
            return cls({}, {}, {}, None)
        # Of what another tool ran, only the names of the profiles are known.
        own = plan.imported is None or plan.imported.format == HARBOR
        return cls(
            {job.profile: job.profile_id for job in plan.jobs if own},
            {job.profile: job.profile_id for job in plan.jobs if own}
            | {one.key: one.policy_id for one in plan.profiles if own},
            {(t.label, t.ref.id): t.ref.family for job in plan.jobs for t in job.tasks if t.ref.family is not None},
            msgspec.json.encode(plan.labels, order="sorted").decode(),
        )

    def columns(self, profile: str | None, dataset: str | None, task: str | None) -> dict[str, str | None]:
        """The columns of one trial."""
        return {
            "profile_id": self.profile_ids.get(profile or ""),
            "policy_id": self.policy_ids.get(profile or ""),
            "family": self.families.get((dataset or "", task or "")),
            "labels": self.labels,
        }


def plan_or_none(batch: Batch) -> Plan | None:
    """The plan of a batch, None when it has none that can be read."""
    try:
        return read_json(batch.plan_json, Plan)
    except (OSError, TbenchError):
        return None


def keep_facts(connection: sqlite3.Connection, key: str, plan: Plan | None) -> None:
    """Put what a plan says beside the trials that the index has of its batch, and note its profiles."""
    facts = PlanFacts.of(plan)
    rows = connection.execute("SELECT rowid, profile, dataset, task FROM trials WHERE batch = ?", (key,)).fetchall()
    connection.executemany(
        "UPDATE trials SET profile_id = :profile_id, policy_id = :policy_id, family = :family, labels = :labels "
        "WHERE rowid = :rowid",
        [{"rowid": row[0], **facts.columns(row[1], row[2], row[3])} for row in rows],
    )
    budget_usd = plan.settings.budget_usd if plan is not None else None
    connection.execute("UPDATE batches SET labels = ?, budget_usd = ? WHERE batch = ?", (facts.labels, budget_usd, key))
    connection.executemany(
        "INSERT OR REPLACE INTO profiles (id, agent, model) VALUES (?, ?, ?)",
        [(p.id, p.content.get("agent"), p.content.get("model")) for p in (plan.profiles if plan else ())],
    )
