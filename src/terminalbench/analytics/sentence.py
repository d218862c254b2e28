"""The sentence of a contrast: what a person reads first. Pure."""

from terminalbench.analytics.model import Contrast
from terminalbench.text.numbers import amount, between, p_equation, plural

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
    if contrast.smallest_detectable is None and metric == "pass":
        return f"{text}; {trials} on {units} can show no gap 4 times in 5"
    if contrast.smallest_detectable is None:
        return f"{text}; the difference is the same on all {units}, so nothing says which gaps {trials} can show"
    return f"{text}; {trials} can only show gaps above {amount(contrast.smallest_detectable, metric, sign=False)}"
