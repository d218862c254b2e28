"""The sentence of a contrast: what a person reads first. Pure."""

from terminalbench.analytics.model import Contrast, Interval
from terminalbench.text.numbers import amount, between, p_equation, plural, times

HAS_VALUE = {
    "pass": "was measured",
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
        nothing = f"no task {HAS_VALUE[metric]} under both"
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
        return f"{text}; {units} can never show a difference with what is left of alpha"
    if found.units < fewest:
        return f"{text}; {units} can never show a difference at this alpha"
    if contrast.smallest_detectable is None and metric == "pass":
        return f"{text}; {trials} on {units} can show no possible gap 4 times in 5"
    if contrast.smallest_detectable is None:
        return f"{text}; the difference is the same on all {units}, so nothing says which gaps {trials} can show"
    return f"{text}; {trials} can only show gaps above {amount(contrast.smallest_detectable, metric, sign=False)}"


def _assumed(smallest: float, in_third: float | None) -> str:
    """What the smallest gap rests on, and what it is where few tasks make it."""
    third = (
        f"is {amount(in_third, 'pass', sign=False)} on average over all"
        if in_third is not None
        else "would have to be larger than it can be"
    )
    return (
        f"the gap of {amount(smallest, 'pass', sign=False)} is shown 4 times in 5 where every task gains alike; "
        f"where only a third of them gains, it {third}"
    )


def excludes_zero(interval: Interval | None) -> bool:
    """Whether an interval of differences lies on one side of zero."""
    return interval is not None and (interval.low > 0 or interval.high < 0)


def notes(contrast: Contrast) -> list[str]:
    """Where two numbers of a contrast seem to say different things, and which of them answers what."""
    found, metric = contrast.estimate, contrast.metric
    said = []
    if contrast.strict and metric == "pass" and found.p is not None:
        said.append(
            "strict (analysis.strict = true): p does not assume that, were they equal, a task favours either alike"
        )
    if contrast.verdict in ("better", "worse") and found.interval is not None and not excludes_zero(found.interval):
        said.append("the interval reaches zero, the verdict follows p: it is exact, the interval is only approximate")
    looks = contrast.sequential
    if contrast.verdict in ("better", "worse") and looks is not None and looks.spared:
        said.append("a difference that ended its run early is told a little too large")
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
            f"on exactly these tasks there is a difference ({ends}); on other tasks like these it is open"
            if excludes_zero(suite)
            else f"attempted again, exactly these tasks could show no difference ({ends}): attempts vary much"
        )
    if found.ratio is not None and found.difference is not None and (found.ratio - 1) * found.difference < 0:
        way = "more" if found.ratio > 1 else "less"
        said.append(f"{contrast.new} takes {way} on most tasks: a few large ones make the mean difference")
    if found.ratio_tasks and found.ratio_tasks < found.tasks:
        left = plural(found.tasks - found.ratio_tasks, "task")
        said.append(f"the ratio is over {found.ratio_tasks}: {left} took nothing under one of the two")
    return said
