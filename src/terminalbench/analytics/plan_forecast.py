"""What a plan will take and what it can show, from the user's own history. Pure, without numpy: `plan` stays light."""

from collections.abc import Mapping, Sequence

import msgspec

from terminalbench.experiments.agents import calls_model
from terminalbench.experiments.plan import JobSpec, Plan
from terminalbench.index.history import PastTrial, ProfileHistory
from terminalbench.records.trial import Outcome
from terminalbench.records.values import total
from terminalbench.text.numbers import dollars, duration, percent, plural, points

CEILING = 0.95
_ENOUGH_TASKS = 5


class ProfileForecast(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One profile's trials: what they will take, from `past_trials` earlier ones `of` the same kind."""

    profile: str
    trials: int
    past_trials: int = 0
    of: str | None = None
    trial_sec: float | None = None
    cost_usd: float | None = None
    simulated: bool = False


class Forecast(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a plan will take (None: no history to say) and the smallest difference it can show, with the assumption."""

    trials: int
    profiles: list[ProfileForecast]
    hours: float | None = None
    cost_usd: float | None = None
    smallest_detectable: float | None = None
    assumption: str | None = None
    effect: float | None = None
    tasks_for_effect: int | None = None
    warnings: list[str] = []


def forecast(plan: Plan, history: Sequence[PastTrial], finished: Mapping[str, int] | None = None) -> Forecast:
    """The forecast of `plan`; `finished` are trials per profile that a batch already holds."""
    sides = {job.profile: ProfileHistory.of(plan, job, history) for job in plan.jobs}
    jobs = [plan.runnable(job) for job in plan.jobs]
    profiles = [_profile(plan, job, sides[job.profile], (finished or {}).get(job.profile, 0)) for job in jobs]
    return Forecast(
        trials=sum(p.trials for p in profiles),
        profiles=profiles,
        hours=_hours(plan, profiles),
        cost_usd=total(profile.cost_usd for profile in profiles),
        **_power(plan, jobs, sides),
        warnings=_room(plan, sides),
    )


def _is_free(plan: Plan, profile: str) -> bool:
    """Return whether a profile costs nothing: its agent calls no model, or it declares that its model is free."""
    record, price = plan.record(profile), plan.price_of(profile)
    return not calls_model(record.content.get("agent", "") if record else "") or (price is not None and price.free)


def _profile(plan: Plan, job: JobSpec, past: ProfileHistory, finished: int) -> ProfileForecast:
    trials = max(0, job.trials - finished)
    seconds = past.mean(job.tasks, _seconds)
    cost = 0.0 if _is_free(plan, job.profile) else past.mean(job.tasks, _cost)
    return ProfileForecast(
        profile=job.profile,
        trials=trials,
        past_trials=len(past.trials),
        of=past.kind,
        trial_sec=seconds,
        cost_usd=cost * trials if cost is not None else None,
        simulated=any(t.simulated for t in past.trials),
    )


def _seconds(trials: Sequence[PastTrial]) -> float | None:
    """Return how long one planned trial takes: one that broke, mostly at once, says nothing of it."""
    known = [t.seconds for t in trials if t.seconds is not None and (t.measured or t.outcome is Outcome.TIMED_OUT)]
    return sum(known) / len(known) if known else None


def _cost(trials: Sequence[PastTrial]) -> float | None:
    """Return what one planned trial costs: tries that had to be repeated are paid too."""
    known = [t for t in trials if t.cost_usd is not None and (t.cost_usd > 0 or t.measured)]
    counted = sum(not t.superseded for t in known)
    return sum(t.cost_usd or 0.0 for t in known) / counted if counted else None


def _hours(plan: Plan, profiles: Sequence[ProfileForecast]) -> float | None:
    """Return when the last job ends: jobs side by side as the plan says, trials side by side in each."""
    side_by_side = plan.settings.profiles_parallel or len(profiles)
    lanes = [0.0] * max(1, side_by_side)
    for profile in profiles:
        if profile.trial_sec is None:
            if profile.trials:
                return None
            continue
        rounds = max(profile.trials / plan.at_once(profile.profile), min(profile.trials, 1))
        lanes[lanes.index(min(lanes))] += rounds * profile.trial_sec
    return max(lanes) / 3600


def _power(plan: Plan, jobs: Sequence[JobSpec], sides: Mapping[str, ProfileHistory]) -> dict:
    """The smallest detectable difference at this size, and what a wanted one would take."""
    oracles = plan.oracles()
    names = [job.profile for job in plan.jobs if job.profile not in oracles]
    declared = [pair for pair in plan.analysis.contrasts or () if set(pair) <= set(names)]
    contrasts = len(declared) or len(names) - 1
    tasks = jobs[0].tasks if jobs else ()
    if contrasts < 1 or not tasks:
        return {}
    from terminalbench.analytics import power, stats

    analysis, attempts = plan.analysis, jobs[0].attempts
    units = len({task.ref.family or (task.ref.dataset, task.ref.id) for task in tasks})
    known = _known(jobs, sides)
    enough = len(known) >= _ENOUGH_TASKS
    like = power.planned(attempts, known if enough else (), together=max(1, round(len(tasks) / units)))
    rule = power.DecisionRule(stats.last_level(analysis.looks, analysis.alpha / contrasts), analysis.strict)
    noun = "family" if units < len(tasks) else "task"
    hard = f"tasks as hard as {len(known)} of them were so far" if enough else "tasks of the usual difficulty"
    looks = f", {plural(analysis.looks, 'look')}" if analysis.looks not in (1, "any") else ""
    looks += ", strict" if analysis.strict else ""
    effect = analysis.effect
    return {
        "smallest_detectable": power.smallest_gap(like, units, rule),
        "assumption": f"{plural(units, noun)}, {plural(attempts, 'attempt')}, {plural(contrasts, 'contrast')} at alpha "
        f"{analysis.alpha:g}{looks}; {hard}, all gaining alike",
        "effect": effect,
        "tasks_for_effect": power.units_needed(like, effect, rule) if effect is not None else None,
    }


def _known(jobs: Sequence[JobSpec], sides: Mapping[str, ProfileHistory]) -> list[tuple[int, int]]:
    """(passed, measured) of each planned task that was measured before, under all profiles together."""
    counts = {(task.label, task.ref.id): [0, 0] for job in jobs for task in job.tasks}
    for past in sides.values():
        for task, trials in past.by_task().items():
            measured = [t.outcome is Outcome.PASSED for t in trials if t.measured and not t.superseded]
            if task in counts:
                counts[task][0] += sum(measured)
                counts[task][1] += len(measured)
    return [(passed, count) for passed, count in counts.values() if count]


def _room(plan: Plan, sides: Mapping[str, ProfileHistory]) -> list[str]:
    """Ceiling and floor: a baseline that passes everything or nothing leaves nothing to see."""
    past = sides.get(plan.baseline)
    job = next((job for job in plan.jobs if job.profile == plan.baseline), None)
    if past is None or job is None:
        return []
    by_task = past.by_task()
    rates = []
    for task in job.tasks:
        measured = [t.outcome is Outcome.PASSED for t in by_task.get((task.label, task.ref.id), []) if t.measured]
        if measured:
            rates.append(sum(measured) / len(measured))
    if not rates:
        return []
    mean = sum(rates) / len(rates)
    tasks = f"{len(rates)} of {plural(len(job.tasks), 'task')}, {past.kind}"
    known = f"{plan.baseline} has passed {percent(mean)} so far ({tasks})"
    if mean >= CEILING:
        return [f"ceiling: {known}; nothing can be much better"]
    if mean <= 1 - CEILING:
        return [f"floor: {known}; nothing can be much worse"]
    settled = sum(rate in (0.0, 1.0) for rate in rates)
    if settled > 0.8 * len(rates) and len(rates) >= _ENOUGH_TASKS:
        return [
            f"{settled} has always or never passed {len(rates)} of {plan.baseline} tasks so far, so few tasks can "
            f"differ"
        ]
    return []


def forecast_lines(found: Forecast) -> list[str]:
    """Return what a plan will take and can show, a line each, indented."""
    time = "time unknown" if found.hours is None else f"about {duration(3600 * found.hours)}"
    lines = [f"{plural(found.trials, 'trial')}; {time}; {_forecast_cost(found)}"]
    used = [p for p in found.profiles if p.past_trials]
    if used:
        lines += [f"  {p.profile}: from {plural(p.past_trials, 'earlier trial')} of {p.of}" for p in used]
    lacking = [p.profile for p in found.profiles if not p.past_trials]
    if lacking:
        lines.append(f"  no earlier trials similar to those of {', '.join(lacking)}")
    if found.assumption is not None:
        if found.smallest_detectable is None:
            shown = "so few can never show a difference"
        else:
            least = points(found.smallest_detectable, sign=False)
            shown = f"smallest difference it can show, 4 times in 5: {least} of pass rate"
        lines.append(f"{shown} ({found.assumption})")
    if found.effect is not None and found.tasks_for_effect is not None:
        lines.append(
            f"to show {points(found.effect, sign=False)} would take about {plural(found.tasks_for_effect, 'task')}"
        )
    lines += [f"warning: {warning}" for warning in found.warnings]
    return [f"  {line}" for line in lines]


def _forecast_cost(found: Forecast) -> str:
    simulated = " (simulated)" if any(p.simulated for p in found.profiles) else ""
    if found.cost_usd is not None:
        return f"about {dollars(found.cost_usd)}{simulated}"
    known = sum(p.cost_usd for p in found.profiles if p.cost_usd is not None)
    return f"cost unknown ({dollars(known)}{simulated} without those)" if known else "cost unknown"
