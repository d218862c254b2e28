"""The numbers of a profile in the live view. Pure."""

from terminalbench.index.totals import wilson
from terminalbench.live.model import LiveProfile
from terminalbench.text import numbers
from terminalbench.text.outcomes import MARKS, word


def price(cost_usd: float | None, profile: LiveProfile | None) -> str:
    """What a trial cost; one of an agent that calls no model costs nothing, which is not unknown."""
    return "no model" if cost_usd is None and profile is not None and profile.free else numbers.dollars(cost_usd)


def cost(profile: LiveProfile) -> str:
    """What a profile has cost so far."""
    if not profile.cost_known and not profile.cost_unknown:
        return "no model" if profile.free else numbers.NOTHING
    return numbers.cost(profile.cost_usd if profile.cost_known else None, profile.cost_unknown)


def tokens(profile: LiveProfile) -> str:
    """The tokens a profile has used so far."""
    if not profile.tokens_known and not profile.tokens_unknown:
        return "no model" if profile.free else numbers.NOTHING
    return numbers.tokens(profile.tokens if profile.tokens_known else None, profile.tokens_unknown)


def rate(profile: LiveProfile) -> str:
    """The share of the measured trials that passed; the pass rate of the summary is the mean over tasks."""
    measured = profile.measured
    return numbers.percent(profile.outcomes["passed"] / measured) if measured else numbers.NOTHING


def interval(profile: LiveProfile) -> str:
    """Its 95 % interval."""
    measured = profile.measured
    return numbers.percents(*wilson(profile.outcomes["passed"] / measured, measured)) if measured else numbers.NOTHING


def classes(profile: LiveProfile) -> str:
    """Why trials have no verdict, the most frequent first."""
    found = sorted(((n, name) for name, n in profile.errors.items() if n > 0), key=lambda entry: (-entry[0], entry[1]))
    return ", ".join(f"{word(name) if name in MARKS else name} {n}" for n, name in found) or numbers.NOTHING


def bar(part: int, whole: int | None, width: int) -> str:
    """How much of a whole is done, as a bar."""
    filled = min(width, width * part // whole) if whole else 0
    return "█" * filled + "░" * (width - filled)
