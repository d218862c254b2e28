"""Numbers as people read them. `None` is never written as zero. Pure.

A cost, a count or a time that is None is `unknown`; a share or a p value is None where nothing was measured, and `-`.
"""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

UNKNOWN = "unknown"
NO_MODEL = "no model"
NOTHING = "-"
"""Stands in a table where a value does not apply."""

type Metric = Literal["pass", "reward", "cost", "tokens", "time"]
MORE_IS_BETTER: tuple[Metric, ...] = ("pass", "reward")


def count(number: int | None) -> str:
    """A whole number: `1,234`."""
    return UNKNOWN if number is None else f"{number:,}"


def plural(number: int, one: str, many: str | None = None) -> str:
    """A count with its noun: `1 task`, `1,234 tasks`, `2 families`."""
    return f"{number:,} {noun(number, one, many)}"


def noun(number: int | None, one: str, many: str | None = None) -> str:
    """The noun that goes with a count: `task`, `tasks`."""
    if many is None:
        many = f"{one[:-1]}ies" if one.endswith("y") and one[-2:-1] not in "aeiou" else f"{one}s"
    return one if number == 1 else many


def some(names: Sequence[str], most: int = 5) -> str:
    """The first names of a list, and how many are left: `a, b, c and 4 more`."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def tokens(number: float | None, unknown: int = 0, *, sign: bool = False) -> str:
    """A number of tokens: `9,876`, and from ten thousand on `12.3k`, `123k`, `4.5M`; `unknown` trials did not say."""
    if number is None:
        return UNKNOWN
    size = abs(round(number))
    text = f"{size:,}"
    for unit, letter in ((1_000, "k"), (1_000_000, "M"), (1_000_000_000, "G")):
        if size >= max(10_000, 0.9995 * unit):
            scaled = size / unit
            text = f"{scaled:.1f}{letter}" if scaled < 99.95 else f"{scaled:,.0f}{letter}"
    return _sign(number, sign) + text + _rest(unknown)


def dollars(value: float | None, *, sign: bool = False) -> str:
    """Money: `$0.50`, `$1,234.50`; below ten cents with two figures, so that it is never taken for zero: `$0.012`."""
    if value is None:
        return UNKNOWN
    size = abs(value)
    if 0 < size < 5e-7:
        return "< $0.000001"
    decimals = 2 if size >= 0.0995 or size == 0 else 1 - math.floor(math.log10(size))
    whole, _, part = f"{size:,.{min(decimals, 6)}f}".partition(".")
    return f"{_sign(value, sign)}${whole}.{part[:2]}{part[2:].rstrip('0')}"


def cost(known_usd: float | None, unknown: int = 0, *, no_model: bool = False, at_least: bool = False) -> str:
    """A sum of costs of which `unknown` are not known: `$0.50 + 3 unknown`; where no model is called: `no model`.

    With `at_least` more was spent, by parts that cannot be counted: `at least $0.50`.
    """
    if no_model:
        return NO_MODEL
    more = "at least " if at_least and known_usd is not None else ""
    return more + dollars(known_usd) + _rest(unknown if known_usd is not None else 0)


def percent(share: float | None) -> str:
    """A share: `12.3 %`; what is not quite all or nothing is not rounded to it."""
    if share is None:
        return NOTHING
    if 0.9995 <= share < 1:
        return "> 99.9 %"
    return "< 0.1 %" if 0 < share < 0.0005 else f"{100 * share:z.1f} %"


def percents(low: float, high: float) -> str:
    """The ends of an interval of shares: `4.1 to 22.3 %`."""
    return f"{100 * low:z.1f} to {100 * high:z.1f} %"


def points(share: float | None, *, sign: bool = True, unit: bool = True) -> str:
    """A difference of shares in percentage points: `+3.1 pt`."""
    return NOTHING if share is None else f"{100 * share:{'+' if sign else ''}z.1f}{' pt' if unit else ''}"


def duration(seconds: float | None, *, sign: bool = False) -> str:
    """A length of time: `7.5 s`, `75 s`, `12.5 min`, `2.5 h`; with `sign` a difference, else never below zero."""
    if seconds is None:
        return UNKNOWN
    size = abs(seconds) if sign else max(0.0, seconds)
    if size < 99.5:
        text = f"{size:.1f} s" if size < 9.95 else f"{size:.0f} s"
    else:
        text = f"{size / 60:.1f} min" if size < 5997 else f"{size / 3600:,.1f} h"
    return (_sign(seconds, sign) if sign else "") + text


def amount(value: float | None, metric: Metric, *, sign: bool = True, unit: bool = True) -> str:
    """A value or a difference of a metric; `unit` False leaves out the unit of points, for a column that names it."""
    if metric == "pass":
        return points(value, sign=sign, unit=unit)
    if metric == "reward":
        return UNKNOWN if value is None else f"{_sign(value, sign)}{abs(value):.3f}"
    if metric == "cost":
        return dollars(value, sign=sign)
    if metric == "time":
        return duration(value, sign=sign)
    return tokens(value, sign=sign) + (" tokens" if unit and value is not None else "")


def between(low: float, high: float, metric: Metric, *, sign: bool = True, unit: bool = True) -> str:
    """The ends of an interval of a metric: `-6.0 to +12.2 pt`."""
    first = amount(low, metric, sign=sign, unit=False)
    return f"{first} to {amount(high, metric, sign=sign, unit=unit)}"


def times(ratio: float | None) -> str:
    """Return how many times as much: `0.62`, `1.50`, `12.3`, `140`."""
    if ratio is None:
        return NOTHING
    return f"{ratio:.2f}" if 0.0995 <= ratio < 9.995 else f"{ratio:,.1f}" if 1 <= ratio < 99.95 else f"{ratio:,.3g}"


def p_value(p: float | None) -> str:
    """A p value: `0.48`, `0.012`, `< 0.001`."""
    if p is None:
        return NOTHING
    return "< 0.001" if p < 0.001 else f"{p:.2f}" if p >= 0.0995 else f"{p:.2g}"


def p_equation(p: float | None) -> str:
    """A p value in a sentence: `p = 0.48`, `p < 0.001`."""
    text = p_value(p)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def size(number: float | None) -> str:
    """A number of bytes: `512 B`, `1.5 KB`, `3.0 MB`."""
    if number is None:
        return UNKNOWN
    if number < 1024:
        return f"{number:.0f} B"
    power = 1 if number < 1023.95 * 1024 else 2 if number < 1023.95 * 1024**2 else 3
    return f"{number / 1024**power:,.1f} {'KMG'[power - 1]}B"


def moment(value: str | datetime | None) -> str:
    """A time of day, to the minute, in UTC: `2026-01-31 14:05`."""
    found = _time(value)
    return UNKNOWN if found is None else found.strftime("%Y-%m-%d %H:%M")


def age(value: str | datetime | None, now: datetime) -> str:
    """Return how long ago a moment was: a duration, in whole days from the third one on."""
    found = _time(value)
    if found is None:
        return UNKNOWN
    passed = now - found
    return plural(passed.days, "day") if passed.days > 2 else duration(passed.total_seconds())


def _time(value: str | datetime | None) -> datetime | None:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    return None if value is None else value.astimezone(UTC)


def _rest(unknown: int) -> str:
    return f" + {unknown:,} unknown" if unknown else ""


def _sign(value: float, always: bool) -> str:
    return "-" if value < 0 else "+" if always else ""
