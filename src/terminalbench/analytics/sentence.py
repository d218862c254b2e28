"""A contrast in one sentence. Pure."""

from terminalbench.analytics.model import Estimate, Metric, Verdict
from terminalbench.text.numbers import amount, between, p_equation, plural

KNOWN = {"cost": "cost", "tokens": "number of tokens", "time": "agent time"}


def sentence(
    names: tuple[str, str],
    metric: Metric,
    found: Estimate,
    verdict: Verdict,
    *,
    unit: str = "task",
    p: float | None = None,
    smallest: float | None = None,
    too_few: bool = False,
    reason: str | None = None,
) -> str:
    """`new vs old: +3.1 pt (-6.0 to +12.2), 4 tasks better, 3 worse, p = 0.48: inconclusive; 21 trials ...`.

    `too_few` says that so few units show nothing, whatever they are; `smallest` is None then, or without any spread.
    """
    head = f"{names[0]} vs {names[1]}" + ("" if metric == "pass" else f", {metric}")
    if found.difference is None:
        nothing = "was measured" if metric == "pass" else f"has a known {KNOWN[metric]}"
        return f"{head}: {reason or f'no task {nothing} under both'}: inconclusive"
    parts = [amount(found.difference, metric)]
    if found.interval is not None:
        parts[0] += f" ({between(found.interval.low, found.interval.high, metric, unit=False)})"
    parts += [f"{plural(found.wins, unit)} better", f"{found.losses} worse"]
    if p is not None:
        parts.append(p_equation(p))
    text = f"{head}: {', '.join(parts)}: {verdict}"
    if verdict != "inconclusive":
        return text
    if reason is not None:
        return f"{text}, because {reason}"
    trials = plural(found.trials, "trial")
    if too_few:
        return f"{text}; {plural(found.units, unit)} can never show a difference at this alpha"
    if smallest is None:
        same = f"the difference is the same on all {plural(found.units, unit)}"
        return f"{text}; {same}, so nothing says which gaps {trials} can show"
    return f"{text}; {trials} can only show gaps above {amount(smallest, metric, sign=False)}"
