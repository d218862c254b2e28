"""One night of a training: control, search, and the oldest challenger against the champion; then what was decided.

Everything that is decided is a function of the plan, the nights before, and the rows of tonight's batches: a night that
was killed runs again from its batches, pays for nothing twice, and decides the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import log2
from typing import Any

import msgspec

from terminalbench.analytics.model import Row
from terminalbench.analytics.rows import rows_of
from terminalbench.index.queries import BatchView
from terminalbench.records.trial import Outcome
from terminalbench.records.values import known_total, stamp
from terminalbench.trainer.batches import AGAIN, AttemptPlan, BatchPart, TrainingBatches, spread
from terminalbench.trainer.evolvers.search import Search, evolver_of
from terminalbench.trainer.gate import GateRule, GateVerdict, alpha_of, canary, confirm, same_profile_p, watch
from terminalbench.trainer.journal import CandidateResult, NightEntry, PairMeasurement, TrainingState, evidence
from terminalbench.trainer.lineage import Lineage, LineageStore
from terminalbench.trainer.plan import TrainingPlan
from terminalbench.trainer.tables import control_share, night_parts, search_usd

FEWEST_MEASURED = 0.5
"""A candidate of whose trials fewer were measured has no rank."""


@dataclass(frozen=True)
class Round:
    """So many candidates go on, with so many trials each."""

    candidates: int
    trials: int


def rounds(candidates: int, trials: int) -> list[Round]:
    """Return how a night's trials are spent on candidates: the same for each round, half of the candidates in the next.

    The last round has two or three: one that is alone has nothing to be ranked against.
    """
    count = max(1, int(log2(candidates))) if candidates else 0
    found, alive, left = [], candidates, trials
    for number in range(count):
        each = left // (count - number) // alive
        found.append(Round(alive, each))
        left -= each * alive
        alive = max(1, alive // 2)
    return found


@dataclass(frozen=True)
class Score:
    """What a candidate did: passed of measured of planned trials, and the mean cost of those that passed, if known."""

    passed: int
    measured: int
    planned: int
    passed_cost_usd: float | None = None

    def rank(self) -> tuple[float, float]:
        """Lower is better."""
        if self.measured < FEWEST_MEASURED * self.planned or not self.measured:
            return (1.0, 0.0)
        cost = self.passed_cost_usd if self.passed_cost_usd is not None else float("inf")
        return (-self.passed / self.measured, cost)


def better_half(scores: Mapping[str, Score]) -> list[str]:
    """Return who goes on, best first: half of the candidates, none that passed nothing. Ties stay in their order."""
    ranked = sorted(scores, key=lambda name: scores[name].rank())
    return [name for name in ranked if scores[name].passed][: max(1, len(scores) // 2)]


type Tables = Mapping[str, Mapping[str, Any]]


@dataclass
class TrainingNight:
    """A night in progress."""

    plan: TrainingPlan
    store: LineageStore
    batches: TrainingBatches
    before: Sequence[NightEntry]
    state: TrainingState
    views: list[BatchView] = field(default_factory=list)
    searched: list[str] = field(default_factory=list)

    def run(self) -> NightEntry:
        """The whole night."""
        state = self.state = self.state.next_night()
        budget = self.plan.table.budget
        watching = state.control is not None
        parts = night_parts(budget, challenger=state.challenger is not None, exploring=True, watching=watching)
        control, control_view = self._control(parts.control)
        search = self._search(parts.explore) if state.searching else None
        explored, winner = (), None
        if search is not None and search.taken:
            explored, winner = self._explore(search.taken, search.left, parts.explore)
        self.state = state.explored(winner)
        if not self.searched:  # nothing was spent on a search: who waits is measured in this night
            self.state = self.state.challenged()
        parts = night_parts(budget, challenger=True, exploring=False, watching=watching)
        judged = self._confirm(parts.confirm) if self.state.challenger is not None else None
        notes: list[str] = []
        if judged is not None and judged.verdict is not None:
            self.state = self.state.judged(judged.verdict)
        if self.state.champion == state.champion and state.control is not None:
            verdict = self._watch(control, control_view)
            control = msgspec.structs.replace(control, verdict=verdict)
            self.state = self.state.watched(verdict)
        same = self._same(control_view, judged)
        if same is not None and same <= self.plan.table.gate.alpha / self.plan.table.nights:
            notes.append("the champion differs from itself, so something other than the profile changed in this night")
        rows = [row for view in self.views for row in rows_of([view])]
        return NightEntry(
            night=state.night,
            time=stamp(datetime.now(UTC)),
            after=self.state,
            control=control,
            explored=tuple(explored),
            searched=tuple(self.searched),
            refused=tuple(search.refused) if search is not None else (),
            stopped=search.stopped if search is not None else None,
            asked=search.asked if search is not None else None,
            winner=winner if winner in self.state.known else None,
            confirm=judged,
            same_p=same,
            **taken(rows),
            notes=tuple(notes),
        )

    @property
    def _lineage(self) -> Lineage:
        return self.store.lineage(self.plan.lineage)

    def _table(self, profile: str) -> Mapping[str, Any]:
        return self._lineage.variants[profile].table

    def _batch(self, name: str, profiles: Tables, measure: AttemptPlan, usd: float | None) -> BatchView:
        view = self.batches.measured(BatchPart(self.state.night, name, profiles, measure, usd))
        self.views.append(view)
        return view

    def _usd(self, share: float) -> float | None:
        budget = self.plan.table.budget.usd
        return budget * share if budget is not None else None

    def _control(self, trials: int) -> tuple[PairMeasurement, BatchView]:
        """The champion against the one before it; the first champion against itself."""
        champion = self.state.champion
        other = self.state.control or f"{champion}{AGAIN}"
        profiles = {champion: self._table(champion), other: self._table(self.state.control or champion)}
        measure = spread(self.plan.split.dev, max(1, trials // 2), self.state.night * max(1, trials // 2))
        share = control_share(self.plan.table.budget, watching=self.state.control is not None)
        view = self._batch("control", profiles, measure, self._usd(share))
        return PairMeasurement(batch=view.batch, new=champion, old=other), view

    def _search(self, trials: int) -> Search:
        """The search of tonight, with what its evolver proposes."""
        names = [name for night in self.before for name in night.searched]
        search = Search(
            plan=self.plan,
            store=self.store,
            before=self.before,
            night=self.state.night,
            champion=self.state.champion,
            known=frozenset(self.state.known),
            trials=trials,
            run=lambda part, tables, measure: self._train(part, tables, measure, trials),
            earlier=lambda: self.batches.rows(names),
            results=self.batches.folder.parent,
            limits=self.batches.limits,
            steps=self.batches.steps,
        )
        search.collect(evolver_of(self.plan))
        return search

    def _train(self, part: str, tables: Tables, measure: AttemptPlan, trials: int) -> list[Row]:
        """A batch of the search; of the budget it gets the share that it is of the `trials` of the search."""
        table = self.plan.table
        usd = search_usd(table.budget, table.evolver, watching=self.state.control is not None)
        share = len(tables) * measure.trials / max(1, trials)
        view = self._batch(part, tables, measure, usd * share if usd is not None else None)
        self.searched.append(view.batch)
        return rows_of([view])

    def _explore(
        self, candidates: Mapping[str, str], left: int, trials: int
    ) -> tuple[list[CandidateResult], str | None]:
        """Paired successive halving on train with the trials that are left, the champion among the candidates.

        A variant that is the only one of a plan is not chosen from anything, so it goes on as it is.
        """
        champion = self.state.champion
        if self.plan.single is not None:
            ((name, reason),) = candidates.items()
            return [CandidateResult(id=name, rounds=0, passed=0, measured=0, reason=reason)], name
        alive = [*candidates, champion]
        scores = dict.fromkeys(alive, Score(0, 0, 0))
        came = dict.fromkeys(alive, 0)
        start = self.state.night * left
        for number, one in enumerate(rounds(len(alive), left), start=1):
            measure = spread(self.plan.split.train, max(1, one.trials), start)
            start += one.trials
            rows = self._train(f"explore-{number}", {name: self._table(name) for name in alive}, measure, trials)
            for name in alive:
                scores[name] = _added(scores[name], [row for row in rows if row.profile == name])
                came[name] = number
            alive = better_half({name: scores[name] for name in alive})
            if not alive:
                break
        told = [
            CandidateResult(
                id=name, rounds=came[name], passed=scores[name].passed, measured=scores[name].measured, reason=reason
            )
            for name, reason in {**candidates, champion: "the champion"}.items()
        ]
        return told, alive[0] if alive and alive[0] != champion else None

    def _confirm(self, trials: int) -> PairMeasurement:
        one, champion = self.state.challenger, self.state.champion
        if one is None:
            raise ValueError("there is no challenger")
        measure = spread(self.plan.split.dev, trials // 2)
        profiles = {name: self._table(name) for name in (champion, one.id)}
        share = 1 - control_share(self.plan.table.budget, watching=self.state.control is not None)
        view = self._batch(one.phase, profiles, measure, self._usd(share))
        rows = self.batches.rows(evidence([*self.before], one.id, champion, one.phase), view)
        judge = confirm if one.phase == "confirm" else canary
        verdict = judge(rows, one.id, champion, rule_of(self.plan, measure.trials, self.state.begun), one.nights + 1)
        return PairMeasurement(batch=view.batch, new=one.id, old=champion, phase=one.phase, verdict=verdict)

    def _watch(self, control: PairMeasurement, view: BatchView) -> GateVerdict:
        gate = self.plan.table.gate
        first = max(self.state.since, self.state.night - gate.watch_nights)
        held = [night.control for night in self.before if night.night > first]
        names = [one.batch for one in held if (one.new, one.old) == (control.new, control.old)]
        rows = self.batches.rows(names, view)
        return watch(rows, control.new, control.old, gate.alpha / self.plan.table.nights)

    def _same(self, view: BatchView, judged: PairMeasurement | None) -> float | None:
        """The champion against itself: its twin, or its trials beside the challenger."""
        rows = rows_of([view])
        champion = rows[0].profile
        first = [row for row in rows if row.profile == champion]
        twin = [row for row in rows if row.profile == f"{champion}{AGAIN}"]
        if judged is not None:
            beside = rows_of([one for one in self.views if one.batch == judged.batch])
            twin += [row for row in beside if row.profile == champion]
        return same_profile_p(first, twin) if twin else None


def taken(rows: Sequence[Row]) -> dict[str, Any]:
    """Return what some trials took, as the journal keeps it."""
    costs = [row.cost_usd for row in rows if row.trial is not None and not row.no_model]
    return {
        "trials": len(rows),
        "measured": sum(row.measured for row in rows),
        "cost_usd": known_total(costs),
        "cost_unknown": sum(cost is None for cost in costs),
    }


def rule_of(plan: TrainingPlan, trials: int, number: int = 1) -> GateRule:
    """Return what the plan declares for the challenger of this number, of `trials` a night."""
    gate = plan.table.gate
    return GateRule(
        alpha=alpha_of(max(1, number), plan.challengers, gate.alpha),
        looks=gate.looks,
        planned_trials=gate.looks * trials,
        canary_nights=gate.canary_nights,
        cost_margin=gate.cost_margin,
        by_family=gate.unit == "family",
    )


def _added(score: Score, rows: Sequence[Row]) -> Score:
    passed = [row for row in rows if row.outcome is Outcome.PASSED]
    costs = [row.cost_usd for row in passed if row.cost_usd is not None]
    known = score.passed_cost_usd * score.passed if score.passed_cost_usd is not None else 0.0
    total = score.passed + len(passed)
    complete = len(costs) == len(passed) and (score.passed_cost_usd is not None or not score.passed)
    return replace(
        score,
        passed=total,
        measured=score.measured + sum(row.measured for row in rows),
        planned=score.planned + len(rows),
        passed_cost_usd=(known + sum(costs)) / total if complete and total else None,
    )
