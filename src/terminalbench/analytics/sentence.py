"""A contrast in one sentence. Pure."""

from terminalbench.analytics.model import Estimate, Metric, Verdict


def amount(value: float, metric: Metric, *, sign: bool = True, unit: bool = True) -> str:
    """A value of a metric as a person reads it: points of pass rate, dollars, tokens, seconds."""
    mark = "+" if sign else ""
    if metric == "pass":
        return f"{100 * value:{mark}z.1f}{' pt' if unit else ''}"
    if metric == "cost":
        number = f"{abs(value):.2f}" if abs(value) >= 0.1 or value == 0 else f"{abs(value):.2g}"
        lead = "-" if value < 0 else mark
        return f"{lead}{'$' if unit else ''}{number}"
    if metric == "tokens":
        return f"{value / 1000:{mark}z.1f}k{' tokens' if unit else ''}"
    return f"{value:{mark}z.1f}{' s' if unit else ''}"


KNOWN = {"cost": "cost", "tokens": "number of tokens", "time": "agent time"}


def p_text(p: float) -> str:
    """A p value with two figures."""
    if p < 0.001:
        return "p < 0.001"
    return f"p = {p:.2f}" if p >= 0.1 else f"p = {p:.2g}"


def count(number: int, noun: str) -> str:
    """A number with its noun."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


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
        low, high = (amount(end, metric, unit=False) for end in (found.interval.low, found.interval.high))
        parts[0] += f" ({low} to {high})"
    parts += [f"{count(found.wins, unit)} better", f"{found.losses} worse"]
    if p is not None:
        parts.append(p_text(p))
    text = f"{head}: {', '.join(parts)}: {verdict}"
    if verdict != "inconclusive":
        return text
    if reason is not None:
        return f"{text}, because {reason}"
    trials = count(found.trials, "trial")
    if too_few:
        return f"{text}; {count(found.units, unit)} can never show a difference at this alpha"
    if smallest is None:
        same = f"the difference is the same on all {count(found.units, unit)}"
        return f"{text}; {same}, so nothing says which gaps {trials} can show"
    return f"{text}; {trials} can only show gaps above {_gap(smallest, metric)}"


def _gap(value: float, metric: Metric) -> str:
    return f"{100 * value:.0f} pt" if metric == "pass" else amount(value, metric, sign=False)
