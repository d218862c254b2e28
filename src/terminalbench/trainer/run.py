"""Running a training: the nights of a plan, one after the other, until they are over or nothing is left to try.

The last word on it is its champion against the profile that it started with, on tasks that were sealed.

    .terminalbench/training/<slug>/holdout.jsonl    each measurement, when it begins and when it is over

A look is recorded and counted before the first trial runs. One that was killed is gone on with: the same look, the same
two profiles, nothing paid twice. What comes of it decides nothing: a champion chosen by the holdout would need another.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import msgspec

from terminalbench.analytics.rows import rows_of
from terminalbench.errors import UserError
from terminalbench.overnight.summary_model import TrainingStep
from terminalbench.runner.executors.local import harbor_loaded_once
from terminalbench.text.numbers import plural
from terminalbench.trainer.batches import BatchPart, NightLimits, TrainingBatches, TrialCounter, spread
from terminalbench.trainer.check import check_before_run
from terminalbench.trainer.evolvers.search import evolver_of
from terminalbench.trainer.gate import GateVerdict, sealed
from terminalbench.trainer.gym import Gym, GymLook
from terminalbench.trainer.journal import (
    HOLDOUT_PART,
    HoldoutLook,
    NightEntry,
    TrainingState,
    add_night,
    add_sealed,
    read_nights,
    read_sealed,
)
from terminalbench.trainer.lineage import ChampionReason, Lineage, LineageStore
from terminalbench.trainer.night import TrainingNight, taken
from terminalbench.trainer.plan import TrainingPlan, declare, hold


@dataclass(frozen=True)
class TrainingResult:
    """A training when a command has run it: its nights, and why there are no more."""

    plan: TrainingPlan
    nights: list[NightEntry]
    why: str
    complete: bool


def run_training(
    plan: TrainingPlan,
    *,
    nights: int | None = None,
    resume: bool = False,
    told: Callable[[NightEntry], None] = lambda _: None,
    step: Callable[[int, TrainingStep], None] = lambda _night, _step: None,
    limits: NightLimits | None = None,
) -> TrainingResult:
    """Declare the plan and run its nights, at most so many now; `resume` goes on with one that was begun.

    `told` is called after each night, `step` while one runs, with its number.
    `limits` are those of a night that it is part of: raises TrainingStopped where they end it.
    """
    store = LineageStore(plan.root)
    with hold(plan, f"training {plan.table.slug}"), harbor_loaded_once():
        done = read_nights(plan.folder)
        if done and not resume:
            hint = f"continue it with tbench trainer run {plan.file} --resume, or give the plan another slug"
            raise UserError(
                f"{plural(len(done), 'night')} of it {'is' if len(done) == 1 else 'are'} over already",
                where=str(plan.file),
                hint=hint,
            )
        evolver_of(plan)  # one that cannot be had is refused before a trial is paid
        if not done:
            check_before_run(plan)
        declare(plan)
        TrainingBatches(plan).check(done)
        _begin(plan, store)
        if done:  # it may have been killed when its last night was recorded, and not yet acted upon
            _crown(plan, store, done[-1])
        first = len(done)
        left = min(plan.table.nights - len(done), nights if nights is not None else plan.table.nights)
        for _ in range(left):
            state = _state(plan, store, done)
            stopped = done[-1].stopped if done else None
            if not _more(state, done) and (stopped is None or done[first:]):
                why = f"the search was stopped: {stopped}" if stopped else "nothing is left to try"
                return TrainingResult(plan, done, why, complete=stopped is None)
            steps = TrialCounter(plan.table.nights, plan.table.budget.trials, partial(step, len(done) + 1))
            entry = TrainingNight(plan, store, TrainingBatches(plan, steps.event, limits, steps), done, state).run()
            add_night(plan.folder, entry)
            done.append(entry)
            _crown(plan, store, entry)
            told(entry)
    if len(done) < plan.table.nights:
        return TrainingResult(plan, done, "more nights are planned", complete=False)
    stopped = next((night.stopped for night in reversed(done) if night.stopped is not None), None)
    if stopped is not None and not any(night.explored for night in done):
        return TrainingResult(plan, done, f"all nights have ended, and nothing was tried: {stopped}", complete=False)
    return TrainingResult(plan, done, "all nights have ended", complete=True)


def _begin(plan: TrainingPlan, store: LineageStore) -> None:
    """Put the first champion into its lineage, unless it is there."""
    if store.lineage(plan.lineage).champion is None:
        made = store.add(plan.lineage, plan.start, reason="where the training starts", source=plan.table.slug)
        store.crown(plan.lineage, made.id, ChampionReason.STARTED, reason=f"the first of {plan.table.slug}")


def _state(plan: TrainingPlan, store: LineageStore, done: list[NightEntry]) -> TrainingState:
    """Return where the training stands; what a person has decided since the last night counts."""
    if not done:
        champion = store.lineage(plan.lineage).champion
        return TrainingState(champion=champion.id if champion else plan.start.profile.id, allowed=plan.challengers)
    state = done[-1].after
    lineage = store.lineage(plan.lineage)
    champion = lineage.champion
    if champion is None or champion.id == state.champion:
        return state
    waiting = (state.challenger.id, *state.waiting) if state.challenger is not None else state.waiting
    return msgspec.structs.replace(
        state,
        champion=champion.id,
        control=lineage.crowned[-1].before,
        since=state.night,
        challenger=None,
        waiting=tuple(one for one in waiting if one != champion.id),
    )


def _more(state: TrainingState, done: list[NightEntry]) -> bool:
    """Return whether a night could still decide anything: someone challenges or waits, or the last one searched."""
    if state.challenger is not None or (state.waiting and state.begun < state.allowed):
        return True
    if not done or done[-1].after.champion != done[-1].champion:
        return state.exploring
    last = done[-1]
    if last.confirm is not None:  # it had a challenger, and did not search
        return state.exploring
    return state.exploring and bool(last.explored or ((last.refused or last.asked) and last.stopped is None))


def _crown(plan: TrainingPlan, store: LineageStore, entry: NightEntry) -> None:
    """Bring the lineage up to what a night has decided; a person's word in it, or after it, stays."""
    if entry.after.champion == entry.champion:
        return
    lineage: Lineage = store.lineage(plan.lineage)
    if lineage.crowned[-1].id != entry.champion:  # it was decided meanwhile, by hand or by another training
        return
    if entry.after.champion in {one.id for one in lineage.crowned if one.time >= entry.time}:
        return
    if any(one.time >= entry.time and one.why is ChampionReason.BY_HAND for one in lineage.crowned):
        return
    promoted = entry.confirm is not None and entry.confirm.new == entry.after.champion
    verdict: GateVerdict | None = entry.confirm.verdict if promoted and entry.confirm else entry.control.verdict
    store.crown(
        plan.lineage,
        entry.after.champion,
        ChampionReason.PROMOTED if promoted else ChampionReason.ROLLED_BACK,
        reason=verdict.reason if verdict is not None else "",
        evidence=msgspec.to_builtins(verdict) if verdict is not None else None,
    )


def measure_holdout(plan: TrainingPlan, reason: str) -> HoldoutLook:
    """Measure the champion against the start on the held-out tasks; one that was begun and not finished comes first."""
    gym = Gym(plan.root)
    with hold(plan, f"holdout of {plan.table.slug}"):
        begun = next((one for one in read_sealed(plan.folder) if one.verdict is None), None)
        if begun is None:
            new, old = _pair(plan)
            look = gym.look(plan.environment, by=f"tbench trainer holdout {plan.table.slug}", reason=reason)
            begun = HoldoutLook(look=look.number, reason=look.reason, new=new, old=old)
            add_sealed(plan.folder, begun)
        else:
            look = next(one for one in gym.looks(plan.environment) if one.number == begun.look)
        ended = _measured(plan, begun, look, TrainingBatches(plan))
        add_sealed(plan.folder, ended)
        return ended


def _pair(plan: TrainingPlan) -> tuple[str, str]:
    champion, start = LineageStore(plan.root).lineage(plan.lineage).champion, plan.start.profile.id
    if champion is None or champion.id == start:
        what = "the champion is still the profile that the training started with, so there is nothing to measure"
        raise UserError(what, where=plan.lineage, hint="no look was used; continue with tbench trainer run")
    return champion.id, start


def _measured(plan: TrainingPlan, begun: HoldoutLook, look: GymLook, batches: TrainingBatches) -> HoldoutLook:
    tasks = [task for task in plan.environment.tasks if task.name in look.tasks]
    variants = LineageStore(plan.root).lineage(plan.lineage).variants
    measure = spread(tasks, max(len(tasks), plan.table.budget.trials // 2))
    profiles = {name: variants[name].table for name in (begun.new, begun.old)}
    view = batches.measured(BatchPart(begun.look, HOLDOUT_PART, profiles, measure, plan.table.budget.usd))
    rows = rows_of([view])
    verdict = sealed(rows, begun.new, begun.old, by_family=plan.table.gate.unit == "family", looks=look.number)
    return msgspec.structs.replace(begun, batch=view.batch, verdict=verdict, **taken(rows))
