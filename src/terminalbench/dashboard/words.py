"""How values read on a page: numbers, times, and somebody else's text made harmless. Pure."""

import re
from datetime import UTC, datetime
from typing import Any

from terminalbench.records import Outcome

DASH = "–"
MARKS = {
    Outcome.PASSED: "✓",
    Outcome.FAILED: "✕",
    Outcome.TIMED_OUT: "T",
    Outcome.ERRORED: "E",
    Outcome.CANCELLED: "C",
    Outcome.NOT_RUN: "·",
}
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def shown(text: str) -> str:
    """Text of an agent as it can be shown: colours dropped, what would act or hide made visible."""
    text = _COLOUR.sub("", text.replace("\r\n", "\n"))
    return _UNSEEN.sub(_visible, text)


def _visible(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    return "�" if 0xD800 <= code <= 0xDFFF else f"[U+{code:04X}]"


def cut(text: str, limit: int) -> str:
    """At most `limit` characters."""
    return text if len(text) <= limit else f"{text[:limit]}…"


def percent(value: float | None, digits: int = 1) -> str:
    """A fraction as a percentage; a dash when it is unknown."""
    return DASH if value is None else f"{100 * value:.{digits}f} %"


def points(value: float | None) -> str:
    """A difference of fractions in percentage points, signed."""
    return DASH if value is None else f"{100 * value:+.1f} pt".replace("-", "−")


def dollars(value: float | None) -> str:
    """Money; what is unknown says so."""
    if value is None:
        return "unknown"
    return f"${value:,.2f}" if value >= 0.1 or value == 0 else f"${value:.4f}"


def cost(value: float | None, unknown: int = 0) -> str:
    """A sum of which some parts may be unknown."""
    return dollars(value) + (f" + {unknown} unknown" if unknown and value is not None else "")


def count(value: int | None) -> str:
    """A whole number with separators."""
    return DASH if value is None else f"{value:,}".replace(",", "\u202f")


def size(value: int) -> str:
    """Bytes for a person."""
    amount = float(value)
    for unit in ("B", "KB", "MB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GB"


def seconds(value: float | None) -> str:
    """A duration."""
    if value is None:
        return DASH
    if value < 100:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def roughly(value: float) -> str:
    """A duration that is only estimated."""
    if value < 90:
        return f"{max(1, round(value))} s"
    minutes = round(value / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"


def moment(value: str | datetime | None) -> str:
    """A time, to the minute, in UTC."""
    found = _time(value)
    return DASH if found is None else found.strftime("%Y-%m-%d %H:%M")


def ago(value: str | None, now: datetime) -> str:
    """How long since."""
    found = _time(value)
    if found is None:
        return DASH
    past = max(0.0, (now - found).total_seconds())
    for limit, unit, name in ((90, 1, "s"), (5400, 60, "min"), (129_600, 3600, "h")):
        if past < limit:
            return f"{past / unit:.0f} {name}"
    return f"{past / 86400:.0f} d"


def _time(value: str | datetime | None) -> datetime | None:
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    return value.astimezone(UTC)


def outcome_words(outcome: Any) -> str:
    """An outcome as words."""
    return str(outcome).replace("_", " ")


def mark(outcome: Any) -> str:
    """The mark of an outcome: told apart by shape as well as by colour."""
    try:
        return MARKS[Outcome(outcome)]
    except ValueError:
        return "?"
