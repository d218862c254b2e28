"""Checking a training plan without running it: what it can show, in how many nights, at which price.

What a gain takes is computed by the test that decides (`analytics.power`), on tasks as hard as is usual; nothing of it
is promised. `tests/simulate/training.py` plays nights through, apart from it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from terminalbench.analytics.power import POWER, DecisionRule, fewest_units, planned, smallest_gap, units_needed
from terminalbench.analytics.stats import nominal_level
from terminalbench.errors import Problem, UserError
from terminalbench.experiments.plan import ProfileRecord
from terminalbench.experiments.toml_lines import invalid_file
from terminalbench.index.history import cost_of_a_try, past_trials
from terminalbench.text.numbers import dollars, p_equation, p_value, plural
from terminalbench.trainer.batches import spread
from terminalbench.trainer.evolvers.search import evolver_of
from terminalbench.trainer.gate import alpha_of
from terminalbench.trainer.plan import TrainingPlan, check_declared, dev_units, load_plan
from terminalbench.trainer.tables import night_parts

GAINS = (0.05, 0.10, 0.20)
LARGEST_WORTH = 0.95
"""A plan that shows no gain up to this is refused: it would have to turn every failure into a pass."""
_MOST_ATTEMPTS = 16
"""More attempts at a task than these hardly show more."""


def check_plan(file: Path, root: Path | None = None) -> TrainingPlan:
    """The plan, as a run would take it. Raises UserError for all that a run refuses before its first trial.

    Nothing is written to the project: no split, no text, no declaration.
    """
    with TemporaryDirectory() as scratch:
        plan = load_plan(file, root, Path(scratch))
        evolver_of(plan)
        check_declared(plan)
        check_power(plan)
    return plan


def check_power(plan: TrainingPlan) -> None:
    """Raise InvalidFile where the plan can show no gain: its nights would decide nothing."""
    found = smallest_gain(plan)
    if found is None or found > LARGEST_WORTH:
        units, names = dev_units(plan)
        shown = "no gain" if found is None else f"no gain below {100 * found:.0f} points"
        what = (
            f"{units} dev {names} in {plural(plan.table.gate.looks, 'look')} can show {shown}, so this plan can "
            "decide nothing"
        )
        raise invalid_file(plan.file, [Problem("gate", what, _cheaper(plan, LARGEST_WORTH))])


def check_before_run(plan: TrainingPlan) -> None:
    """Raise UserError where the first night would be paid for nothing: no power, or a search whose model is dead."""
    check_power(plan)
    spec = plan.table.evolver.model
    if spec is None or spec.startswith("replay:"):  # a recording has no answer to another question
        return
    from terminalbench.llm.check import check_model

    found = check_model(spec)
    if found.problem is not None:
        what = f"evolver.model: {spec}: {found.problem}"
        raise UserError(what, where=str(plan.file), hint=found.hint or f"tbench models check {spec}")


@dataclass(frozen=True)
class GainForecast:
    """What a true gain on all dev tasks takes: the chance that it is shown, and nights and trials until then.

    `nights` and `trials` are of one challenger that is shown in the middle of all cases; None where most are not.
    """

    gain: float
    chance: float
    nights: int | None
    trials: int | None


def forecasts(plan: TrainingPlan) -> Iterator[GainForecast]:
    """Yield what gains of 5, 10 and 20 points take."""
    budget, gate = plan.table.budget, plan.table.gate
    night = night_parts(budget, challenger=True, exploring=False, watching=False)
    pair = 2 * spread(plan.split.dev, night.confirm // 2).trials
    searches = 0 if plan.single is not None else 1
    search = night_parts(budget, challenger=False, exploring=True, watching=False)
    for gain in GAINS:
        chances = [_chance(plan, look, gain) for look in range(1, gate.looks + 1)]
        middle = next((look for look, chance in enumerate(chances, start=1) if chance >= 0.5), None)
        if middle is None:
            yield GainForecast(gain, chances[-1], None, None)
            continue
        measured = middle + gate.canary_nights
        trials = searches * (search.control + search.explore) + measured * (night.control + pair)
        yield GainForecast(gain, chances[-1], searches + measured, trials)


def forecast_lines(plan: TrainingPlan) -> list[str]:
    """Return what gains take, in nights and dollars, and what would make it cheaper; a line each."""
    price, source = trial_price(plan)
    lines, gains = [], list(forecasts(plan))
    for one in gains:
        said = f"a gain of {100 * one.gain:.0f} points"
        if one.nights is None or one.trials is None or one.nights > plan.table.nights:
            why = "" if one.nights is None else f": it needs {plural(one.nights, 'night')} of {plan.table.nights}"
            lines.append(f"{said}: not shown by this plan{why}")
            continue
        cost = f", {dollars(one.trials * price)}" if price else ""
        often = f"shown in {100 * min(one.chance, 0.99):.0f} of 100 cases"
        lines.append(f"{said}: about {plural(one.nights, 'night')}, {plural(one.trials, 'trial')}{cost}; {often}")
    if (least := smallest_gain(plan)) is not None and least > GAINS[-1]:
        lines.append(f"the smallest gain that it shows in 4 of 5 cases: {100 * least:.0f} points")
    lines.append(source if price is None or not price else f"{dollars(price)} a trial, {source}")
    if next(one for one in gains if one.gain == GAINS[1]).chance < POWER:
        lines.append(f"to show {100 * GAINS[1]:.0f} points: {_cheaper(plan, GAINS[1])}")
    return lines


def trial_price(plan: TrainingPlan) -> tuple[float | None, str]:
    """Return what a trial of the champion probably costs, and where that is known from."""
    start = plan.start.profile
    if plan.simulated:
        return 0.0, "no model is called, so it costs nothing"
    if start.likely_cost_usd is not None:
        return start.likely_cost_usd, "as the profile declares"
    results = plan.root / plan.table.run.get("results_root", "results")
    past = past_trials(results, [ProfileRecord(start.key, start.id, start.content)])
    usd = cost_of_a_try(past)
    if usd is None:
        return (
            None,
            "the cost of a trial is unknown: no trial of this agent and model has reported one (set likely_cost_usd)",
        )
    same = any(trial.profile_id == start.id for trial in past)
    return usd, f"as {'its' if same else 'the agent and model'} {plural(len(past), 'trial')} so far"


def smallest_gain(plan: TrainingPlan) -> float | None:
    """The gain on all dev tasks that the first challenger shows four times in five; None where it shows none."""
    looks = plan.table.gate.looks
    return smallest_gap(_units(plan, looks), dev_units(plan)[0], _rule(plan, looks))


def idle_looks(plan: TrainingPlan) -> str | None:
    """Return which of the declared looks can decide nothing, whatever is measured: too few units for their level."""
    gate, (units, names) = plan.table.gate, dev_units(plan)
    levels = [_rule(plan, look).level for look in range(1, gate.looks + 1)]
    idle = [level for level in levels if fewest_units(level) > units]
    if not idle:
        return None
    which = f"look 1 of {gate.looks}" if len(idle) == 1 else f"looks 1 to {len(idle)} of {gate.looks}"
    return (
        f"{which} can decide nothing: {units} dev {names} reach {p_equation(2.0 ** (1 - units))} at best, but p must "
        f"be {p_value(idle[-1])}"
    )


def _chance(plan: TrainingPlan, look: int, gain: float) -> float:
    units, rule = dev_units(plan)[0], _rule(plan, look)
    return rule.chance(_units(plan, look), units, gain) if units >= fewest_units(rule.level) else 0.0


def _rule(plan: TrainingPlan, look: int) -> DecisionRule:
    gate = plan.table.gate
    return DecisionRule(nominal_level(look, gate.looks, alpha_of(1, plan.challengers, gate.alpha)))


def _units(plan: TrainingPlan, look: int):
    parts = night_parts(plan.table.budget, challenger=True, exploring=False, watching=False)
    attempts = look * spread(plan.split.dev, parts.confirm // 2).attempts
    together = max(1, round(len(plan.split.dev) / dev_units(plan)[0]))
    return planned(min(max(1, attempts), _MOST_ATTEMPTS), together=together)


def _cheaper(plan: TrainingPlan, gain: float) -> str:
    """Return what of a plan to change so that it shows a gain."""
    looks, (units, names) = plan.table.gate.looks, dev_units(plan)
    needed = units_needed(_units(plan, looks), gain, _rule(plan, looks))
    said = f"about {needed} dev {names} (now {units}: more tasks, or a larger split.dev)"
    fewer = f", fewer gate.challengers (now {plan.challengers})" if plan.challengers > 1 else ""
    return f"{said}{fewer}, more gate.looks, or a larger gate.alpha"
