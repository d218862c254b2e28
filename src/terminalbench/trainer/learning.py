"""A night that learns: iterations of the champion on train with and without lessons, then a night of its training.

The iterations are an ordinary night, of the tasks that teach alone: lessons come from nothing that measures. What they
found is in the project's memory when the training begins. Killed anywhere, a resume goes on where it was: which night
of the training belongs to this one is in `config.json`, and one that is in the training's journal does not run again.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from terminalbench.errors import Interrupted, UserError
from terminalbench.experiments.write import write_experiment
from terminalbench.json_files import write_json
from terminalbench.overnight import loop
from terminalbench.overnight.begin import DEFAULT_ITERATIONS, NightRequest, PreparedNight, night_at
from terminalbench.overnight.loop import NightEnd, NightListener, Tell
from terminalbench.overnight.night import NightTraining, until_of
from terminalbench.overnight.nights import config_of
from terminalbench.overnight.summary_model import TrainedNight, TrainingStep
from terminalbench.records.values import known_total
from terminalbench.text.names import typed
from terminalbench.text.numbers import cost
from terminalbench.trainer.batches import NightLimits, TrainingBatches, TrainingStopped
from terminalbench.trainer.check import check_before_run
from terminalbench.trainer.journal import NightEntry, read_nights, read_sealed
from terminalbench.trainer.lineage import Lineage, LineageStore
from terminalbench.trainer.plan import TrainingPlan, declare, load_plan
from terminalbench.trainer.run import run_training
from terminalbench.trainer.training import called, claim, ledger, spent, standing
from terminalbench.trainer.variants import ResolvedProfile, resolved


def run_learning_night(
    request: NightRequest, learn: Path | None, resume: Path | None, listener: NightListener | None = None
) -> NightEnd:
    """Run a night by a training plan, or go on with one; a night that was begun without a plan stays without.

    The folder of `--output` may hold the night already: the command that began it goes on with it.
    """
    if resume is None and (resume := loop.begun_at(request)) is not None:
        request = replace(request, again=True)
    if resume is None:
        if learn is None:
            return loop.run_night(request, listener=listener)
        plan = load_plan(learn, request.root)
        request = _iterations(plan, request)
    else:
        known = config_of(night_at(resume)).learn
        if learn is not None and (known is None or learn.resolve() != Path(known.plan)):
            now = f"its plan is {known.plan}" if known is not None else "it was started without --learn"
            raise UserError(f"was started with other options: {now}", where=str(resume))
        if known is None:
            return loop.run_night(request, resume, listener=listener)
        plan = load_plan(Path(known.plan), request.root)
    told = listener or NightListener()
    return loop.run_night(request, resume, listener=told, then=lambda night, tell: _train(plan, night, tell, told))


def _iterations(plan: TrainingPlan, request: NightRequest) -> NightRequest:
    """The request of a night that iterates the champion on train."""
    for option, given in (("--suite", request.suite), ("--model", request.models)):
        if given:
            raise UserError(f"{option}: with --learn, the plan decides the tasks and profiles", hint="leave it out")
    number = len(read_nights(plan.folder)) + 1
    if number > plan.table.nights:
        raise UserError("all its nights have ended", where=str(plan.file), hint="write a new plan with another slug")
    if number == 1:
        check_before_run(plan)
    declare(plan)  # before the first trial: a plan that is not the declared one is refused now, not in the morning
    champion = _champion(plan)
    changes = {
        "slug": plan.table.slug,
        "name": f"{plan.table.slug}: iterations of night {number}",
        "run": plan.table.run,
    }
    made = plan.environment.experiment({"champion": champion.table}, plan.split.train, changes)
    suite = plan.folder / "nights" / f"{number:03}" / "iterations.toml"
    write_experiment(made, suite)
    reads = champion.profile.agent.model and champion.profile.lessons is None
    return replace(
        request,
        suite=suite,
        root=plan.root,
        iterations=request.iterations or DEFAULT_ITERATIONS,  # with --until as well: the training needs time too
        lessons=request.lessons or ("masked" if reads else None),
        learn=NightTraining(str(plan.file.resolve()), plan.table.slug, number),
    )


def _champion(plan: TrainingPlan) -> ResolvedProfile:
    champion = LineageStore(plan.root).lineage(plan.lineage).champion
    return resolved(plan.environment, champion.table, "champion") if champion is not None else plan.start


def _train(plan: TrainingPlan, night: PreparedNight, tell: Tell, told: NightListener) -> None:
    """The night of the training that belongs to this night, unless it is over already; then what it came to.

    What the iterations have left of the night's money and time is what it may take.
    """
    asked = night.config.learn
    if asked is None:
        return
    bounds = NightLimits(night.folder.gate_json.absolute(), until_of(night.config))
    done, why = read_nights(plan.folder), "it was stopped"
    if len(done) < asked.night:
        _write(night, _unfinished(plan, asked, bounds, why))  # until it is over, the report says that it is not
        tell(f"night {asked.night} of training {asked.training} begins: tbench trainer status {typed(plan.file)}")
        try:
            step = partial(_step, plan, night, bounds, told)
            trained = run_training(plan, nights=1, resume=True, limits=bounds, step=step)
            done, why = trained.nights, trained.why
        except TrainingStopped as error:
            tell(f"night {asked.night} of training {asked.training} is not finished: {error.what}")
            _write(night, _unfinished(plan, asked, bounds, error.what))
            return
        except Interrupted as error:
            error.hint = f"tbench {night.config.command} --resume continue it with {typed(night.folder.folder)}"
            raise
        if len(done) < asked.night:
            said = f"training {asked.training} has no night {asked.night}: {why}"
            tell(said)
            _write(night, TrainedNight(training=asked.training, night=asked.night, lines=[said]))
            return
        tell(f"night {asked.night} of training {asked.training} has ended: {spent([done[asked.night - 1]])}")
    _write(night, trained_night(plan, done[: asked.night], LineageStore(plan.root).lineage(plan.lineage)))


def _step(
    plan: TrainingPlan, night: PreparedNight, bounds: NightLimits, told: NightListener, _number: int, step: TrainingStep
) -> None:
    """Write down how far it is, for those who watch."""
    if (asked := night.config.learn) is not None:
        so_far = msgspec.structs.replace(_unfinished(plan, asked, bounds, "it was stopped"), step=step)
        _write(night, so_far)
        told.step(so_far)


def _write(night: PreparedNight, told: TrainedNight) -> None:
    write_json(night.folder.training_json, told)


def _unfinished(plan: TrainingPlan, asked: NightTraining, bounds: NightLimits, why: str) -> TrainedNight:
    """A night of a training that is not over, for the morning report."""
    so_far = bounds.spent(TrainingBatches(plan).folder)
    return TrainedNight(
        training=asked.training,
        night=asked.night,
        lines=[f"it is not finished: {why}", f"spent so far: {cost(so_far.cost_usd, so_far.cost_unknown)}"],
        cost_usd=so_far.cost_usd,
        cost_unknown=so_far.cost_unknown,
        stopped=why,
    )


def trained_night(plan: TrainingPlan, nights: Sequence[NightEntry], lineage: Lineage) -> TrainedNight:
    """Return what the last of some nights came to, for the morning report."""
    last = nights[-1]
    simulated = " (simulated)" if plan.simulated else ""
    crowned = [one for one in lineage.crowned if one.id == last.after.champion]
    said = claim(crowned[-1], lineage) if crowned else "the first champion"
    changed = last.after.champion != last.champion
    lines = [
        f"{standing(nights, plan.table.nights, lineage)}{simulated}",
        f"spent: {spent([last])}; by the whole training {spent(nights, read_sealed(plan.folder))}",
        f"champion: {called(lineage, last.after.champion)}, {'new tonight, ' if changed else ''}{said}",
    ]
    if last.confirm is not None and last.confirm.verdict is not None and not changed:
        lines.append(f"no gain is claimed of {called(lineage, last.confirm.new)} yet")
    return TrainedNight(
        training=plan.table.slug,
        night=last.night,
        lines=[*lines, *last.notes],
        comparisons=[(one.part, one.profile, one.what) for one in ledger([last])],
        cost_usd=known_total([last.cost_usd, last.asked.cost_usd if last.asked else None]),
        cost_unknown=last.cost_unknown + (last.asked.cost_unknown if last.asked else 0),
        waits=_waits(plan, last),
        answer=_answer(last, said, changed=changed) + simulated,
        trials=last.trials,
    )


def _answer(last: NightEntry, claimed: str, *, changed: bool) -> str:
    """Return whether a night made the champion better, by how much, and how sure that is."""
    if changed:
        return f"yes: new champion {last.after.champion}, {claimed}"
    judged = last.confirm
    if judged is not None and judged.verdict is not None:
        return f"not shown yet: {judged.new} against the champion {judged.old}: {judged.verdict.reason}"
    rates = {one.id: f"{one.passed} of {one.measured}" for one in last.explored}
    if last.winner is None or last.winner not in rates:
        return "no: the search found no variant that passes more than the champion"
    beside = f", the champion {rates[last.champion]}" if last.champion in rates else ""
    return f"not measured yet: {last.winner} passed {rates[last.winner]} train trials of the search{beside}"


def _waits(plan: TrainingPlan, last: NightEntry) -> str | None:
    """The challenger that waits after a night, the command for its next one, and what that will probably cost."""
    now = last.after.challenger
    waiting = [one.id for one in (now,) if one is not None] + list(last.after.waiting)
    if not waiting or last.night >= plan.table.nights:
        return None
    phase = now.phase if now is not None else "confirm"
    spent_usd = f" (this one cost {cost(last.cost_usd, last.cost_unknown)})" if last.cost_usd else ""
    return f"challenger {waiting[0]} is waiting for its {phase}: tbench overnight --learn {typed(plan.file)}{spent_usd}"
