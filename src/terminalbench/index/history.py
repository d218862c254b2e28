"""The time and cost of earlier trials, from an index that exists: nothing is made or scanned."""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec

from terminalbench.experiments.plan import JobSpec, Plan, PlannedTask, ProfileRecord
from terminalbench.harbor.limits.accounts import LikelyCost
from terminalbench.index.store import FILE_NAME
from terminalbench.records.trial import CLOCK_JUMPED, Outcome
from terminalbench.records.values import elapsed_sec, total

SAME = "the same profile"
ALIKE = "the same agent and model"
"""What earlier trials that tell about a profile may be of."""
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
        """Return whether the verifier's word counts."""
        return self.outcome is not None and self.outcome.measured


@dataclass(frozen=True)
class ProfileHistory:
    """Earlier trials that tell about one planned profile, and of what `kind` they are."""

    trials: list[PastTrial]
    kind: str | None

    @classmethod
    def of(cls, plan: Plan, job: JobSpec, history: Sequence[PastTrial]) -> "ProfileHistory":
        """Those of the same profile; else those of the same agent and model."""
        same = [t for t in history if t.profile_id == job.profile_id]
        if same:
            return cls(same, SAME)
        record = plan.record(job.profile)
        content = record.content if record is not None else {}
        treated = (content.get("agent", ""), content.get("model"))
        alike = [t for t in history if (t.agent, t.model) == treated]
        return cls(alike, ALIKE if alike else None)

    def by_task(self) -> dict[tuple[str, str], list[PastTrial]]:
        """The trials of each task, by label and id."""
        found: dict[tuple[str, str], list[PastTrial]] = {}
        for trial in self.trials:
            found.setdefault((trial.label or "", trial.task or ""), []).append(trial)
        return found

    def mean(self, tasks: Sequence[PlannedTask], what: Callable[[Sequence[PastTrial]], float | None]) -> float | None:
        """The mean over the planned tasks: each from its own past, else from that of all tasks."""
        by_task, overall = self.by_task(), what(self.trials)
        known = [what(by_task.get((t.label, t.ref.id), [])) for t in tasks]
        summed = total(mean if mean is not None else overall for mean in known)
        return None if summed is None else summed / len(known)


def likely_costs(plan: Plan, history: Sequence[PastTrial]) -> dict[str, LikelyCost]:
    """Return what one try of each profile probably costs: as it declares, else by its own past; none where unknown.

    Never by the past of a profile that is only alike: a dear one would keep a new, cheap one from starting at all.
    """
    found: dict[str, LikelyCost] = {}
    for job in plan.jobs:
        record = plan.record(job.profile)
        declared = record.likely_cost_usd if record is not None else None
        past = ProfileHistory([t for t in history if t.profile_id == job.profile_id], SAME)
        usd = past.mean(job.tasks, cost_of_a_try) if declared is None else declared
        if declared is not None:
            found[job.profile] = LikelyCost(declared)
        elif usd is not None:
            found[job.profile] = LikelyCost(usd, SAME, sum(t.cost_usd is not None for t in past.trials))
    return found


def cost_of_a_try(trials: Sequence[PastTrial]) -> float | None:
    """The mean cost of those whose cost is known; None where none is."""
    known = [t.cost_usd for t in trials if t.cost_usd is not None and (t.cost_usd > 0 or t.measured)]
    return sum(known) / len(known) if known else None


def past_trials(results_root: Path, profiles: Sequence[ProfileRecord]) -> list[PastTrial]:
    """The newest trials of each of some profiles, up to 2,000; of profiles alike (agent, model) where it has none.

    None without a readable index: one of an earlier version tells nothing until the next scan has filled it.
    """
    path = results_root / FILE_NAME
    if not path.is_file():
        return []
    # A database in WAL mode needs its side files to be opened; where there are none, nothing is being written.
    beside = all(path.with_name(f"{FILE_NAME}{suffix}").exists() for suffix in ("-wal", "-shm"))
    mode = "mode=ro" if beside else "mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True, timeout=5)) as connection:
            return _trials(connection, profiles)
    except sqlite3.Error:
        return []


def _trials(connection: sqlite3.Connection, profiles: Sequence[ProfileRecord]) -> list[PastTrial]:
    groups: set[tuple[str, ...]] = set()
    for profile in profiles:
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
