"""The sentence of a contrast: what a person reads first. Pure."""

from collections.abc import Callable, Mapping, Sequence

from terminalbench.analytics.contrast import PENDING, LookPlan
from terminalbench.analytics.model import Contrast, Interval, MissingTrials, ProfileSummary, Row
from terminalbench.analytics.settings import ComparisonSettings
from terminalbench.analytics.summary import ProfileRows
from terminalbench.index.queries import BatchView
from terminalbench.records.trial import Outcome
from terminalbench.text.numbers import amount, between, p_equation, p_value, percent, plural, times


def could_be_undone(missing: MissingTrials) -> str:
    """Return how few of the missing trials undo the verdict."""
    again = missing.redrawn_new + missing.redrawn_old
    lost = missing.new + missing.old + again
    trials = plural(lost, "missing trial") + (" (those that broke and were run again are among them)" if again else "")
    if not missing.undone_by:
        return f'"{missing.verdict}" may not hold with the {trials} counted'
    less = "" if missing.exact else ", perhaps fewer,"
    against = "went against it" if missing.verdict != "equivalent" else "favoured the same profile"
    return f'"{missing.verdict}" would not hold if {missing.undone_by} of {trials}{less} {against}'


def too_early(looks: LookPlan) -> str | None:
    """That the last declared look is still to come, and what this one asks for; None when it is not."""
    if looks.method != "obrien-fleming" or looks.last:
        return None
    if not looks.look:
        return f"it is before the first of {looks.looks} looks"
    return f"look {looks.look} of {looks.looks} needs p of at most {p_value(looks.level)}"


def ended_early(looks: LookPlan, chance: float | None) -> str | None:
    """That the run stopped, and what the rest might have shown; None where the latter is not known."""
    if looks.method != "sign-flips" or chance is None:
        return None
    ended = f"the run ended early, at look {looks.look} of {looks.looks}"
    return f"{ended}: the probability that the rest decides is {percent(chance)}"


def still_to_come(profiles: Mapping[str, ProfileRows]) -> list[str]:
    """Return what of the plan is missing, besides what runs."""
    reasons: dict[str, Callable[[Row], bool]] = {
        "have not run or were cut off": lambda row: row.outcome in PENDING and not row.running and not row.untested,
        "were not evaluated": lambda row: row.untested,
    }
    return [
        f"{name}: {count} of {len(profile.rows())} planned trials {why}"
        for why, lacks in reasons.items()
        for name, profile in profiles.items()
        if (count := sum(map(lacks, profile.rows())))
    ]


def still_runs(view: BatchView) -> list[str]:
    """That a batch runs, and how far it is."""
    if not view.live:
        return []
    running = sum(cell.running for cell in view.cells)
    ended = sum(cell.outcome is not Outcome.NOT_RUN for cell in view.cells)
    waiting = sum(cell.state == Outcome.NOT_RUN and cell.reason is None for cell in view.cells)
    more = f", {waiting} waiting" if waiting else ""
    return [
        f"{view.batch} is still running: {ended} of {plural(len(view.cells), 'trial')} ended, {running} running{more}"
    ]


def unknown_k(summaries: Sequence[ProfileSummary], settings: ComparisonSettings) -> list[str]:
    """That pass@k is not known of some profiles."""
    said = []
    for s in summaries:
        never = sum(not task.measured for task in s.tasks)
        if s.measured and not s.pass_at and max(task.planned for task in s.tasks) > 1:
            tasks = f"{never} of {len(s.tasks)} were never measured"
            said.append(f"{s.profile}: pass@k is not shown, because it needs all planned tasks, and {tasks}")
        if settings.k is not None and settings.k not in s.pass_at:
            needed = plural(settings.k, "attempt that counts", "attempts that count")
            said.append(f"{s.profile}: pass@{settings.k} is unknown, because not every task has {needed}")
    return said


HAS_VALUE = {
    "pass": "was measured",
    "reward": "has a known reward",
    "cost": "has a known cost",
    "tokens": "has a known number of tokens",
    "time": "has a known agent time",
}


def sentence(contrast: Contrast, fewest: int) -> str:
    """`new vs old: +3.1 pt (-6.0 to +12.2), 4 tasks better, 3 worse, p = 0.48: inconclusive; 21 trials ...`.

    Fewer than `fewest` units show nothing, whatever they are.
    """
    found, metric, reason = contrast.estimate, contrast.metric, contrast.reason
    head = f"{contrast.new} vs {contrast.old}" + ("" if metric == "pass" else f", {metric}")
    if found.difference is None:
        nothing = f"no task {HAS_VALUE[metric]} for both"
        return f"{head}: {reason or nothing}: inconclusive"
    parts = [amount(found.difference, metric)]
    if found.interval is not None:
        parts[0] += f" ({between(found.interval.low, found.interval.high, metric, unit=False)})"
    if found.ratio is not None:
        span = found.ratio_interval
        known = [f"{times(span.low)} to {times(span.high)}"] if span is not None else []
        known += [p_equation(found.ratio_p)] if found.ratio_p is not None else []
        parts.append(f"x{times(found.ratio)}" + (f" ({', '.join(known)})" if known else ""))
    parts += [f"{plural(found.wins, contrast.unit)} better", f"{found.losses} worse"]
    if contrast.p_adjusted is not None:
        parts.append(p_equation(contrast.p_adjusted))
    text = f"{head}: {', '.join(parts)}: {contrast.verdict}"
    if contrast.verdict != "inconclusive":
        return text
    if reason is not None:
        return f"{text}, because {reason}"
    trials, units = plural(found.trials, "trial"), plural(found.units, contrast.unit)
    if contrast.sequential is not None and contrast.sequential.never and contrast.sequential.method == "growth":
        return f"{text}; {units} can never show a difference with the remaining alpha"
    if found.units < fewest:
        return f"{text}; {units} can never show a difference at this alpha"
    if contrast.smallest_detectable is None and metric == "pass":
        return f"{text}; {trials} on {units} are too few: they would show no gap that can exist 4 times in 5"
    if contrast.smallest_detectable is None:
        return (
            f"{text}; the difference is the same on all {units}, so the smallest gap that {trials} can show is unknown"
        )
    return f"{text}; {trials} can only show gaps above {amount(contrast.smallest_detectable, metric, sign=False)}"


def _assumed(smallest: float, in_third: float | None) -> str:
    """Return what the smallest gap rests on, and what it is where few tasks make it."""
    third = (
        f"is {amount(in_third, 'pass', sign=False)} on average over all"
        if in_third is not None
        else "would have to be impossibly large"
    )
    return (
        f"a gap of {amount(smallest, 'pass', sign=False)} is shown 4 times in 5 if every task gains equally; if only "
        f"a third of the tasks gain, the gap {third}"
    )


def excludes_zero(interval: Interval | None) -> bool:
    """Return whether an interval of differences lies on one side of zero."""
    return interval is not None and (interval.low > 0 or interval.high < 0)


def notes(contrast: Contrast) -> list[str]:
    """Return where two numbers of a contrast seem to say different things, and which of them answers what."""
    found, metric = contrast.estimate, contrast.metric
    said = []
    if contrast.strict and metric == "pass" and found.p is not None:
        said.append(
            "strict (analysis.strict = true): p does not assume that a task favours equal profiles equally often"
        )
    if contrast.verdict in ("better", "worse") and found.interval is not None and not excludes_zero(found.interval):
        said.append(
            "the interval reaches zero, but the verdict follows p, which is exact; the interval is only approximate"
        )
    looks = contrast.sequential
    if contrast.verdict in ("better", "worse") and looks is not None and looks.spared:
        said.append("the run ended early, so its difference is slightly overestimated")
    if (
        contrast.reason is None
        and contrast.verdict == "inconclusive"
        and metric == "pass"
        and contrast.smallest_detectable
    ):
        said.append(_assumed(contrast.smallest_detectable, contrast.smallest_in_third))
    suite = found.suite_interval if not contrast.same_treatment else None
    if suite is not None and found.interval is not None and excludes_zero(suite) != excludes_zero(found.interval):
        ends = between(suite.low, suite.high, metric)
        said.append(
            f"on exactly these tasks there is a difference ({ends}); whether there is one on similar tasks is undecided"
            if excludes_zero(suite)
            else f"exactly these tasks, attempted again, might show no difference ({ends}), because attempts vary a lot"
        )
    if found.ratio is not None and found.difference is not None and (found.ratio - 1) * found.difference < 0:
        way = "more" if found.ratio > 1 else "less"
        said.append(f"{contrast.new} uses {way} on most tasks: a few large values cause the mean difference")
    if found.ratio_tasks and found.ratio_tasks < found.tasks:
        left = plural(found.tasks - found.ratio_tasks, "task")
        said.append(f"the ratio is over {found.ratio_tasks}: {left} used nothing with one of the two")
    return said
