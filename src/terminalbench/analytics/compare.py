"""`compare`: rows and settings in, a `Comparison` out. Pure: no clock, no files, nothing random without a seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from terminalbench.analytics import power, stats
from terminalbench.analytics.checks import Comparability, comparability
from terminalbench.analytics.contrast import (
    PENDING,
    CountedWay,
    Looks,
    coverage,
    discordant,
    ended_only,
    estimate,
    judge,
    looks_early,
    looks_now,
    sequential_record,
    size_of,
)
from terminalbench.analytics.model import Comparison, Contrast, Estimate, Interval, Row, Verdict
from terminalbench.analytics.rows import rows_of
from terminalbench.analytics.sample import WAYS, Sample, Way, sample, task_differences, values_of
from terminalbench.analytics.settings import Asked, Settings, settings_of
from terminalbench.analytics.summary import ProfileRows, by_profile, summarise
from terminalbench.errors import UserError, did_you_mean
from terminalbench.index.queries import BatchView
from terminalbench.records import TaskRef
from terminalbench.text.numbers import amount, between, p_equation, p_value, percent, plural

_HAS_VALUE = {
    "pass": "was measured",
    "cost": "has a known cost",
    "tokens": "has a known number of tokens",
    "time": "has a known agent time",
}


def compare_views(views: Sequence[BatchView], asked: Asked | None = None) -> Comparison:
    """What batches say about their profiles: as their plans declare, and as it is asked now."""
    return compare(rows_of(views), settings_of(views, asked))


def compare(rows: Sequence[Row], settings: Settings) -> Comparison:
    """Everything the trials say about the profiles: each by itself, and every contrast with its verdict."""
    profiles = by_profile(rows)
    for name in (settings.baseline, *(name for pair in settings.contrasts for name in pair)):
        if name not in profiles:
            raise UserError(f'no profile is called "{name}"', hint=did_you_mean(name, list(profiles)))
    summaries = summarise(profiles, settings)
    prepared = [_prepare(profiles[new], profiles[old], settings) for new, old in settings.contrasts]
    return Comparison(
        batches=list(dict.fromkeys(row.batch for row in rows)),
        metric=settings.metric,
        alpha=settings.alpha,
        baseline=settings.baseline,
        profiles=summaries,
        contrasts=_contrasts(prepared, settings),
        pareto=[summary.profile for summary in summaries if summary.on_pareto_front],
        warnings=[*settings.warnings, *_still_to_come(profiles), *_unknown_k(summaries, settings)],
        departures=list(settings.departures),
        rule=settings.rule,
        coverage=settings.coverage,
        hypothesis=settings.hypothesis,
        k=settings.k,
    )


def _still_to_come(profiles: Mapping[str, ProfileRows]) -> list[str]:
    """What of the plan is missing."""
    counts = {name: (sum(row.outcome in PENDING for row in p.rows()), len(p.rows())) for name, p in profiles.items()}
    lacking = {name: numbers for name, numbers in counts.items() if numbers[0]}
    what = "planned trials have not run or were cut off"
    if len(lacking) > 3:
        missing, planned = sum(count for count, _ in lacking.values()), sum(count for _, count in counts.values())
        return [
            f"{missing} of {planned} {what}: {', '.join(f'{name} {count}' for name, (count, _) in lacking.items())}"
        ]
    return [f"{name}: {count} of {planned} {what}" for name, (count, planned) in lacking.items()]


def _unknown_k(summaries: Sequence, settings: Settings) -> list[str]:
    lacking = [s.profile for s in summaries if settings.k is not None and settings.k not in s.pass_at]
    if not lacking:
        return []
    needed = plural(settings.k or 0, "attempt that counts", "attempts that count")
    return [f"pass@{settings.k} is unknown for {', '.join(lacking)}: not every task has {needed}"]


@dataclass(frozen=True)
class _Prepared:
    """A contrast before the family is known."""

    new: ProfileRows
    old: ProfileRows
    tasks: list[TaskRef]
    checked: Comparability
    samples: dict[Way, Sample | None]
    estimates: dict[Way, Estimate]
    planned: tuple[ProfileRows, ProfileRows]


def _prepare(new: ProfileRows, old: ProfileRows, settings: Settings) -> _Prepared:
    planned = (new, old)
    if looks_early(settings):
        new, old = ended_only(new), ended_only(old)
    checked = comparability(new, old, settings.profiles)
    tasks = [task for task in new.tasks if task in old.tasks and task not in checked.changed]
    samples: dict[Way, Sample | None] = {
        way: sample(new, old, tasks, settings.metric, way) if not checked.refused else None for way in WAYS
    }
    measured = estimate(samples["exclude"], settings)
    alike = all(row.measured for side in (new, old) for task in tasks for row in side.tasks[task])
    estimates: dict[Way, Estimate] = {
        "exclude": measured,
        "fail": measured if alike else estimate(samples["fail"], settings),
    }
    return _Prepared(new, old, tasks, checked, samples, estimates, planned)


def _contrasts(prepared: Sequence[_Prepared], settings: Settings) -> list[Contrast]:
    adjusted = {way: stats.holm([p.estimates[way].p for p in prepared]) for way in WAYS}
    family = max(1, sum(p.estimates[settings.rule].p is not None for p in prepared))
    found = []
    for place, contrast in enumerate(prepared):
        ways = {way: _counted(contrast, way, adjusted[way][place], settings, family) for way in WAYS}
        found.append(_contrast(contrast, ways, settings, family))
    return found


def _counted(prepared: _Prepared, way: Way, p: float | None, settings: Settings, family: int) -> CountedWay:
    found = prepared.samples[way]
    narrow = (
        stats.equivalence_interval(found.paired, settings.alpha / family)
        if found is not None and settings.margin is not None and settings.metric == "pass"
        else None
    )
    return CountedWay(prepared.estimates[way], p, discordant(prepared.new, prepared.old, prepared.tasks, way), narrow)


def _contrast(prepared: _Prepared, ways: Mapping[Way, CountedWay], settings: Settings, family: int) -> Contrast:
    new, old, checked = prepared.new, prepared.old, prepared.checked
    declared = ways[settings.rule]
    other = ways["fail" if settings.rule == "exclude" else "exclude"]
    shares = [coverage(side, prepared.tasks, settings) for side in (new, old)]
    looks = looks_now(*prepared.planned, settings, family)
    verdict, reason = _verdict(prepared, ways, looks, settings, shares)
    size = size_of(declared.estimate, settings, family)
    found = prepared.samples[settings.rule]
    unit = "family" if found is not None and found.by_family else "task"
    with_value = set(found.tasks) if found is not None else set()
    alone = _alone(prepared, with_value, settings)
    contrast = Contrast(
        new=new.profile,
        old=old.profile,
        metric=settings.metric,
        rule=settings.rule,
        estimate=declared.estimate,
        other_way=other.estimate,
        verdict=verdict,
        sentence="",
        p_adjusted=declared.p_adjusted,
        unit=unit,
        tasks=task_differences(found),
        only_new=alone[0],
        only_old=alone[1],
        unmeasured=alone[2],
        changed=checked.changed,
        smallest_detectable=size.smallest,
        trials_needed=size.trials,
        effect=size.effect,
        margin=settings.margin,
        equivalence_interval=_to_fit_margin(ways, settings),
        error_rate_p=checked.error_rate_p,
        warnings=checked.warnings,
        refused=checked.refused,
        reason=reason,
        coverage_new=shares[0],
        coverage_old=shares[1],
        sequential=sequential_record(looks, declared),
    )
    fewest = power.fewest_units(settings.alpha / family)
    return msgspec.structs.replace(contrast, sentence=_sentence(contrast, fewest))


def _sentence(contrast: Contrast, fewest: int) -> str:
    """`new vs old: +3.1 pt (-6.0 to +12.2), 4 tasks better, 3 worse, p = 0.48: inconclusive; 21 trials ...`.

    Fewer than `fewest` units show nothing, whatever they are.
    """
    found, metric, reason = contrast.estimate, contrast.metric, contrast.reason
    head = f"{contrast.new} vs {contrast.old}" + ("" if metric == "pass" else f", {metric}")
    if found.difference is None:
        nothing = f"no task {_HAS_VALUE[metric]} under both"
        return f"{head}: {reason or nothing}: inconclusive"
    parts = [amount(found.difference, metric)]
    if found.interval is not None:
        parts[0] += f" ({between(found.interval.low, found.interval.high, metric, unit=False)})"
    parts += [f"{plural(found.wins, contrast.unit)} better", f"{found.losses} worse"]
    if contrast.p_adjusted is not None:
        parts.append(p_equation(contrast.p_adjusted))
    text = f"{head}: {', '.join(parts)}: {contrast.verdict}"
    if contrast.verdict != "inconclusive":
        return text
    if reason is not None:
        return f"{text}, because {reason}"
    trials, units = plural(found.trials, "trial"), plural(found.units, contrast.unit)
    if found.units < fewest:
        return f"{text}; {units} can never show a difference at this alpha"
    if contrast.smallest_detectable is None:
        return f"{text}; the difference is the same on all {units}, so nothing says which gaps {trials} can show"
    return f"{text}; {trials} can only show gaps above {amount(contrast.smallest_detectable, metric, sign=False)}"


def _verdict(
    prepared: _Prepared,
    ways: Mapping[Way, CountedWay],
    looks: Looks,
    settings: Settings,
    shares: Sequence[float | None],
) -> tuple[Verdict, str | None]:
    """The verdict, and why there is none where the numbers alone would not say."""
    if prepared.checked.refused:
        return "inconclusive", f"not compared ({'; '.join(prepared.checked.refused)})"
    if prepared.samples[settings.rule] is None:
        return "inconclusive", None
    for side, share in zip((prepared.new, prepared.old), shares, strict=True):
        if share is not None and share < settings.coverage:
            wanted = f"{_HAS_VALUE[settings.metric]} ({percent(settings.coverage)} wanted)"
            return "inconclusive", f"only {percent(share)} of what {side.profile} was to do {wanted}"
    alone = judge([ways[settings.rule]], looks, settings)
    verdict = judge([ways[way] for way in _needed(settings)], looks, settings)
    if verdict == "inconclusive" and alone != "inconclusive":
        otherwise = "count as not passed" if settings.metric == "pass" else "are counted the other way"
        return verdict, f"it does not hold when trials that were not measured {otherwise}"
    if verdict == "inconclusive" and looks.method == "e-value" and not looks.last:
        fits = all(ways[way].inside(settings.margin) for way in _needed(settings))
        return verdict, "equivalence is judged once, when every trial has ended" if fits else None
    return verdict, _too_early(looks) if verdict == "inconclusive" else None


def _needed(settings: Settings) -> tuple[Way, ...]:
    """The ways of counting a verdict must hold in: dropped crashes never help, nor do crashes that cost little."""
    return ("fail",) if settings.rule == "fail" and settings.metric == "pass" else WAYS


def _to_fit_margin(ways: Mapping[Way, CountedWay], settings: Settings) -> Interval | None:
    """What must lie inside the margin, over every way of counting that is needed; None without a margin."""
    found = [one for way in _needed(settings) if (one := ways[way].narrow) is not None]
    if settings.margin is None or settings.metric != "pass" or len(found) < len(_needed(settings)):
        return None
    return msgspec.structs.replace(found[0], low=min(one.low for one in found), high=max(one.high for one in found))


def _too_early(looks: Looks) -> str | None:
    if looks.method != "obrien-fleming" or looks.last:
        return None
    if not looks.look:
        return f"it is before the first of {looks.looks} looks"
    return f"look {looks.look} of {looks.looks} needs p up to {p_value(looks.level)}"


def _alone(prepared: _Prepared, with_value: set[TaskRef], settings: Settings) -> tuple[list[TaskRef], ...]:
    """Tasks with a value only under new, only under old, and under neither; those that changed stand apart."""
    value = values_of(settings.metric, settings.rule)[0]
    sides = (prepared.new, prepared.old)
    having = [{task for task, rows in side.tasks.items() if any(value(r) is not None for r in rows)} for side in sides]
    lists: tuple[list[TaskRef], list[TaskRef], list[TaskRef]] = ([], [], [])
    for task in dict.fromkeys([*prepared.new.tasks, *prepared.old.tasks]):
        if task in with_value or task in prepared.checked.changed or prepared.checked.refused:
            continue
        lists[0 if task in having[0] else 1 if task in having[1] else 2].append(task)
    return lists
