"""Times and sums as records hold them; None is unknown."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec


def stamp(moment: datetime) -> str:
    """A time (UTC) as events write it."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def copied[S: msgspec.Struct](kind: type[S], source: object, **own: Any) -> S:
    """Return a struct with what a source has under the names of its fields, and with values of its `own`."""
    names = [name for name in kind.__struct_fields__ if name not in own and hasattr(source, name)]
    return kind(**{name: getattr(source, name) for name in names}, **own)


def elapsed_sec(started_at: str | None, finished_at: str | None) -> float | None:
    """Seconds between two times; None when one is unknown, or the clock was set back in between."""
    if started_at is None or finished_at is None:
        return None
    seconds = (datetime.fromisoformat(finished_at) - datetime.fromisoformat(started_at)).total_seconds()
    return seconds if seconds >= 0 else None


def total[N: (int, float)](values: Iterable[N | None]) -> N | None:
    """The sum; None as soon as one of them is unknown, and of no values at all."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if found and len(known) == len(found) else None


def known_total[N: (int, float)](values: Iterable[N | None]) -> N | None:
    """The sum of those that are known; None when none is."""
    return total(value for value in values if value is not None)
