"""In which places two versions of a plan differ. Pure."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from terminalbench.experiments.profile_changes import Difference

_BEFORE, _SHOWN = 12, 40


def changed_places(old: Any, new: Any) -> list[str]:
    """Every value that differs, each with its path: `variants[2].options.max_turns: 4 -> 9`."""
    return [Difference(path, before, after).summary() for path, before, after in _differing(old, new, "")]


def _differing(old: Any, new: Any, at: str) -> Iterator[tuple[str, Any, Any]]:
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            yield from _differing(old.get(name), new.get(name), f"{at}.{name}" if at else name)
    elif isinstance(old, list) and isinstance(new, list):
        for index, (before, after) in enumerate(zip_longest(old, new)):
            yield from _differing(before, after, f"{at}[{index}]")
    elif isinstance(old, str) and isinstance(new, str) and "\n" not in old + new:
        first = next(place for place, (one, other) in enumerate(zip_longest(old, new)) if one != other)
        yield at, _around(old, first), _around(new, first)
    else:
        yield at, old, new


def _around(text: str, place: int) -> str:
    """A long text where it begins to differ."""
    if len(text) <= _BEFORE + _SHOWN:
        return text
    first, last = max(0, place - _BEFORE), place + _SHOWN
    return f"{'...' if first else ''}{text[first:last]}{'...' if last < len(text) else ''}"
