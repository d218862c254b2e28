"""Sums over many trials for tables: the pass rate and the spend, and of a batch the counts its list shows.

Counted here and nowhere else; the counts of a batch are made when a scan finds a change, and kept in the index.
"""

import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace
from math import sqrt

import msgspec
from msgspec.structs import asdict

from terminalbench.experiments.agents import calls_model
from terminalbench.experiments.plan import Plan
from terminalbench.harbor.limits.accounts import exceeded, over_usd, spent_words
from terminalbench.index.places import PlanFacts
from terminalbench.index.queries import BatchView, CellState, TrialRow, assign_cells, batch_rows, row_outcome
from terminalbench.records.counts import Spend, pass_rates
from terminalbench.records.trial import Outcome, ReadState, TaskRef
from terminalbench.text.numbers import dollars
from terminalbench.text.outcomes import word


def wilson(rate: float, count: float, alpha: float = 0.05) -> tuple[float, float]:
    """Wilson's interval of a rate seen in `count` independent trials; `count` may be an effective number."""
    from statistics import NormalDist

    z = NormalDist().inv_cdf(1 - alpha / 2)
    scale = 1 + z * z / count
    centre = (rate + z * z / (2 * count)) / scale
    half = z / scale * sqrt(rate * (1 - rate) / count + z * z / (4 * count * count))
    return max(0.0, centre - half), min(1.0, centre + half)


def spend(rows: Iterable[TrialRow], free: Container[str | None] = ()) -> Spend:
    """Return what trials cost together. One that never started costs nothing, nor does one of a `free` profile."""
    ran = [row for row in rows if row.state != ReadState.HELD]
    return Spend.total(Spend(0.0, 0, 0, 0) if row.profile in free else Spend.of(row.usage) for row in ran)


class BudgetUse(msgspec.Struct, frozen=True):
    """The spend of a batch of its own budget; `over_usd`: by how much known costs pass it, None when they do not."""

    budget_usd: float
    cost_usd: float | None
    cost_unknown: int
    over_usd: float | None

    @property
    def over_said(self) -> str | None:
        """That it is exceeded, in words."""
        if self.over_usd is None:
            return None
        spent = spent_words(self.cost_usd or 0.0, self.cost_unknown)
        return exceeded(f"the budget of {dollars(self.budget_usd)}", self.over_usd, spent)


def budget_use(view: BatchView) -> BudgetUse | None:
    """Return what a batch has spent of its own budget, superseded trials included; None without one."""
    budget = view.plan.settings.budget_usd
    if budget is None:
        return None
    spent = spend(view.rows(), view.plan.without_model())
    return BudgetUse(budget, spent.cost_usd, spent.cost_unknown, over_usd(budget, spent.cost_usd))


def raised_budget(plan: Plan) -> str:
    """Return what lets trials of a batch run that a used-up budget holds back, in words."""
    own = [] if plan.settings.budget_usd is None else ["run.budget_usd in the experiment file"]
    return f"raise {' or '.join([*own, *([] if plan.gate is None else [f'budget_usd in {plan.gate}'])])}"


def of_unknown_cost(view: BatchView, profiles: Iterable[str]) -> list[str]:
    """Return those of some profiles that have run and told no cost at all: their trials use up a budget by a guess."""
    free, rows = view.plan.without_model(), [*view.rows()]
    spent = {name: spend((row for row in rows if row.profile == name), free) for name in dict.fromkeys(profiles)}
    return [name for name, one in spent.items() if one.cost_unknown and not one.cost_usd]


class ProfileTotals(msgspec.Struct, frozen=True, kw_only=True):
    """One profile of a batch in numbers. None is unknown; `no_model` means it calls no model and costs nothing.

    `rate` and `rate_all` are means over tasks, as everywhere. `mean_wall_sec` is of trials from start to end. Cost and
    tokens are of superseded trials too. `policy_id` is the `profile_id` whatever the memory held.
    """

    profile: str
    planned: int
    outcomes: dict[str, int]
    profile_id: str | None = None
    policy_id: str | None = None
    description: str | None = None
    rate: float | None = None
    rate_all: float | None = None
    superseded: int = 0
    cost_usd: float | None = None
    cost_unknown: int = 0
    tokens: int | None = None
    tokens_unknown: int = 0
    mean_wall_sec: float | None = None
    no_model: bool = False
    simulated: bool = False
    oracle: bool = False

    @property
    def reason(self) -> str | None:
        """Return what a profile of a training, which has its id as its name, is called: why it is tried."""
        return self.description if self.profile_id and self.profile.startswith(self.profile_id) else None

    @property
    def passed(self) -> int:
        """Trials the verifier passed."""
        return self.outcomes.get(Outcome.PASSED, 0)

    @property
    def failed(self) -> int:
        """Trials the verifier failed."""
        return self.outcomes.get(Outcome.FAILED, 0)

    @property
    def measured(self) -> int:
        """Trials with a verdict."""
        return self.passed + self.failed

    @property
    def coverage(self) -> float | None:
        """The share of the planned trials that has a verdict."""
        return self.measured / self.planned if self.planned else None

    @property
    def cost_per_pass(self) -> float | None:
        """Known cost over passed trials; None while a cost is unknown."""
        if self.cost_usd is None or self.cost_unknown or not self.passed:
            return None
        return self.cost_usd / self.passed


def profile_totals(view: BatchView) -> list[ProfileTotals]:
    """The profile table, in the order of the plan."""
    return _totals(view.plan, view.cells, view.rows(), view.plan.without_model())


def _totals(
    plan: Plan | None, cells: list[CellState], rows: list[TrialRow], free: Container[str | None]
) -> list[ProfileTotals]:
    facts = PlanFacts.of(plan)
    described = {profile.key: profile.description for profile in plan.profiles} if plan else {}
    oracles = plan.oracles() if plan else frozenset()
    planned: dict[str, list[CellState]] = {name: [] for name in facts.profile_ids}
    for cell in cells:
        planned.setdefault(cell.profile, []).append(cell)
    tries: dict[str, list[TrialRow]] = defaultdict(list)
    for row in rows:
        tries[row.profile or "?"].append(row)
    made = []
    for name, found in planned.items():
        counted = [cell.row for cell in found if cell.row]
        times = [t for row in counted if row.trial and (t := row.trial.wall_sec) is not None]
        totals = ProfileTotals(
            profile=name,
            planned=len(found),
            outcomes=dict(Counter(cell.outcome.value for cell in found)),
            profile_id=facts.profile_ids.get(name),
            policy_id=facts.policy_ids.get(name),
            description=described.get(name),
            superseded=sum(row.state != ReadState.HELD for row in tries[name])
            - sum(row.state != ReadState.HELD for row in counted),
            mean_wall_sec=sum(times) / len(times) if times else None,
            no_model=name in free,
            simulated=any(row.trial is not None and row.trial.simulated for row in tries[name]),
            oracle=name in oracles,
            **asdict(pass_rates([cell for cell in found if not cell.spared])),
            **asdict(spend(tries[name], free)),
        )
        made.append(totals)
    return made


_DEFAULT_REASONS = {Outcome.TIMED_OUT: "the agent ran out of time", Outcome.ERRORED: "no reason was recorded"}


@dataclass(frozen=True)
class Reason:
    """A reason why trials of a profile were not measured, and one of them."""

    outcome: str
    error_class: str | None
    text: str
    profile: str
    count: int = 1
    example: TrialRow | None = None

    @property
    def what(self) -> str:
        """Return how they ended and why: `errored (network): no route to host`."""
        kind = f" ({self.error_class})" if self.error_class not in (None, self.outcome) else ""
        how = word(self.outcome)
        return f"{how}{kind}: {self.text.removeprefix(f'{how}: ')}"


def reason(cell: CellState) -> Reason:
    """Return why one trial was not measured, or failed with an error."""
    trial = cell.row.trial if cell.row else None
    default = "it never started" if cell.row is None else _DEFAULT_REASONS.get(cell.outcome, "it was interrupted")
    default = "it has not ended" if cell.running else default
    error = trial.error_class.value if trial and trial.error_class else None
    return Reason(cell.state, error, cell.reason or default, cell.profile, example=cell.row)


def causes(cells: Iterable[CellState]) -> list[tuple[str, dict[str, int]]]:
    """Return the causes by which trials ended, each once with its trials by profile, the most frequent first."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for cell in cells:
        found[reason(cell).what][cell.profile] += 1
    return sorted(((what, dict(by)) for what, by in found.items()), key=lambda cause: -sum(cause[1].values()))


def not_measured(cells: Iterable[CellState]) -> list[Reason]:
    """Return why trials were not measured, the most frequent reasons first."""
    found: dict[tuple[str, str], list[Reason]] = defaultdict(list)
    for cell in cells:
        if not cell.measured:
            one = reason(cell)
            found[one.what, one.profile].append(one)
    made = [
        replace(same[0], count=len(same), example=next((one.example for one in same if one.example), None))
        for same in found.values()
    ]
    return sorted(made, key=lambda one: -one.count)


_INSERT = (
    "INSERT OR REPLACE INTO summaries (batch, version, trials, passed, failed, not_measured, cost_usd, cost_unknown, "
    "simulated, last_at, profiles) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def summarize(connection: sqlite3.Connection, key: str, plan: Plan | None) -> None:
    """Count the batch `key` anew; keep the counts, and of each trial whether it counts and as which attempt.

    Inside a transaction of the caller.
    """
    found = batch_rows(connection, key)
    rows = [row for row in found if not row.copy]
    cells = assign_cells(plan, rows)[0] if plan is not None else _unplanned(rows)
    free = plan.without_model() if plan else _free(rows)
    profiles = _totals(plan, cells, rows, free)
    total = Counter(cell.outcome for cell in cells)
    measured = total[Outcome.PASSED] + total[Outcome.FAILED]
    spent = spend(rows, free)
    values = (
        key,
        time.time_ns(),
        total.total() - total[Outcome.NOT_RUN],
        total[Outcome.PASSED],
        total[Outcome.FAILED],
        total.total() - measured,
        spent.cost_usd,
        spent.cost_unknown,
        int(any(row.trial is not None and row.trial.simulated for row in rows)),
        max((row.trial.finished_at for row in rows if row.trial and row.trial.finished_at), default=None),
        msgspec.json.encode(profiles).decode(),
    )
    changed = _standing(found, cells, planned=plan is not None)
    connection.execute(_INSERT, values)
    connection.executemany(
        "UPDATE trials SET counts = ?, attempt = ? WHERE batch = ? AND job = ? AND trial = ?",
        ((counts, attempt, key, row.job, row.name) for row, counts, attempt in changed),
    )


def _free(rows: list[TrialRow]) -> set[str | None]:
    """The profiles of unplanned trials whose agent calls no model."""
    agents = {(row.profile, row.trial.agent) for row in rows if row.trial is not None}
    return {profile for profile, agent in agents if agent is not None and not calls_model(agent)}


def _unplanned(rows: list[TrialRow]) -> list[CellState]:
    """Trials that nobody planned: each stands for itself."""
    return [
        CellState(row.profile or "?", TaskRef(row.task or "?", row.dataset or "?"), 1, row_outcome(row), row)
        for row in rows
        if not row.superseded
    ]


def _standing(
    rows: list[TrialRow], cells: list[CellState], *, planned: bool
) -> Iterator[tuple[TrialRow, int, int | None]]:
    """The trials of which the index does not yet say rightly whether they count, and as which attempt."""
    attempts = {(cell.row.job, cell.row.name): cell.attempt for cell in cells if cell.row is not None}
    for row in rows:
        counts = (row.job, row.name) in attempts
        attempt = attempts[row.job, row.name] if counts and planned else None
        if (row.counts, row.attempt) != (counts, attempt):
            yield row, int(counts), attempt
