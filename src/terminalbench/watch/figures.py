"""Numbers as the live view writes them: unknown is said, never shown as zero. Pure."""

from terminalbench.live.forecast import wilson
from terminalbench.live.line import clock
from terminalbench.live.model import LiveProfile
from terminalbench.report.text import MARKS, Money

NOTHING = "-"
_MARKS = {outcome.value: mark for outcome, mark in MARKS.items()}


def ending(outcome: str) -> str:
    """How a trial ended: its mark and its word."""
    return f"{_MARKS.get(outcome, '?')} {outcome}"


def price(cost_usd: float | None, profile: LiveProfile | None, unknown: str = "unknown") -> str:
    """What a trial cost; one of an agent that calls no model costs nothing, which is not unknown."""
    if cost_usd is not None:
        return f"${cost_usd:.2f}"
    return "no model" if profile is not None and profile.free else unknown


def duration(seconds: float | None, unknown: str = NOTHING) -> str:
    """A time in seconds, from a hundred on as m:ss."""
    if seconds is None:
        return unknown
    return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s" if seconds < 99.5 else clock(seconds)


def count(number: int) -> str:
    """A large number in three or four characters."""
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if number >= size:
            value = number / size
            return f"{value:.1f}{unit}" if value < 99.95 else f"{value:.0f}{unit}"
    return str(number)


def cost(profile: LiveProfile, *, narrow: bool) -> str:
    """What a profile has cost so far."""
    if not profile.cost_known and not profile.cost_unknown:
        return "no model" if profile.free else NOTHING
    if not narrow:
        return str(Money(profile.cost_usd if profile.cost_known else None, profile.cost_unknown))
    return _short(f"${profile.cost_usd:.2f}", profile.cost_known, profile.cost_unknown)


def tokens(profile: LiveProfile, *, narrow: bool) -> str:
    """The tokens a profile has used so far."""
    if not profile.tokens_known and not profile.tokens_unknown:
        return "no model" if profile.free else NOTHING
    if not narrow and not profile.tokens_known:
        return "unknown"
    known = count(profile.tokens)
    if narrow:
        return _short(known, profile.tokens_known, profile.tokens_unknown)
    return known + (f" + {profile.tokens_unknown} unknown" if profile.tokens_unknown else "")


def _short(known: str, number: int, unknown: int) -> str:
    if not number:
        return "?"
    return f"{known}+{unknown}?" if unknown else known


def rate(profile: LiveProfile) -> str:
    """The share of the measured trials that passed; the pass rate of the summary is the mean over tasks."""
    measured = profile.measured
    return f"{100 * profile.outcomes['passed'] / measured:.0f} %" if measured else NOTHING


def interval(profile: LiveProfile) -> str:
    """Its 95 % interval."""
    found = wilson(profile.outcomes["passed"], profile.measured)
    return f"{100 * found[0]:.0f} to {100 * found[1]:.0f} %" if found is not None else NOTHING


def classes(profile: LiveProfile) -> str:
    """Why trials have no verdict, the most frequent first."""
    found = sorted(((n, name) for name, n in profile.errors.items() if n > 0), key=lambda entry: (-entry[0], entry[1]))
    return ", ".join(f"{name} {n}" for n, name in found) or NOTHING


def bar(part: int, whole: int | None, width: int) -> str:
    """How much of a whole is done, as a bar."""
    filled = min(width, width * part // whole) if whole else 0
    return "█" * filled + "░" * (width - filled)
