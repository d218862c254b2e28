"""Numbers as people read them. Unknown is a dash or the word, never zero."""

from terminalbench.analytics.model import Interval, Metric

UNKNOWN = "–"


def rate_text(value: float | None) -> str:
    """A share as a percentage."""
    return UNKNOWN if value is None else f"{100 * value:.1f} %"


def range_text(interval: Interval | None) -> str:
    """The ends of an interval of shares."""
    return "" if interval is None else f"{100 * interval.low:.1f} to {100 * interval.high:.1f} %"


def usd_text(value: float | None) -> str:
    """Money; small amounts keep the digits that tell them from zero."""
    if value is None:
        return "unknown"
    return f"${value:,.2f}" if value >= 1 or value == 0 else f"${value:.4f}"


def seconds_text(value: float | None) -> str:
    """A duration."""
    if value is None:
        return UNKNOWN
    if value < 100:
        return f"{value:.1f} s"
    return f"{value / 60:.1f} min" if value < 6000 else f"{value / 3600:.1f} h"


def count_text(value: int | None) -> str:
    """A large number, short."""
    if value is None:
        return "unknown"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (1e3 if letter == 'k' else size):.3g} {letter}"
    return f"{value:,}"


def size_text(value: float | None, metric: Metric) -> str:
    """An amount of the metric's difference, without a sign."""
    if value is None:
        return UNKNOWN
    if metric == "pass":
        return f"{100 * value:.1f} pt"
    if metric == "cost":
        return usd_text(value)
    return seconds_text(value) if metric == "time" else count_text(round(value))


def difference_text(value: float | None, metric: Metric) -> str:
    """A difference with its sign."""
    if value is None:
        return UNKNOWN
    return f"{'-' if value < 0 else '+'}{size_text(abs(value), metric)}"


def differences_text(interval: Interval | None, metric: Metric) -> str:
    """The ends of an interval of differences."""
    if interval is None:
        return UNKNOWN
    return f"{difference_text(interval.low, metric)} to {difference_text(interval.high, metric)}"


def p_text(value: float | None) -> str:
    """A p value; a tiny one is only said to be tiny."""
    if value is None:
        return UNKNOWN
    return "< 0.001" if value < 0.001 else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def plural(count: int, one: str, many: str | None = None) -> str:
    """A count with its noun."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
