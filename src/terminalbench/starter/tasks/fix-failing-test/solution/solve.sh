#!/bin/bash
set -eu
cat > /app/durations.py <<'PY'
"""Durations as people write them: 2d4h, 1h30m, 45s."""

import re

UNITS = {"d": 24 * 3600, "h": 3600, "m": 60, "s": 1}
PATTERN = re.compile(r" *" + r"".join(rf"(?:([0-9]+){unit} *)?" for unit in UNITS))


def parse(text):
    """The seconds in `text`, an int.

    `text` is one or more groups of a whole number and a unit. The units are d, h, m and s; each may appear
    at most once, and they come in that order. Spaces around and between groups are allowed, not inside one.
    Anything else, the empty text included, is a ValueError.
    """
    match = PATTERN.fullmatch(text)
    if match is None or not any(match.groups()):
        raise ValueError(f"not a duration: {text!r}")
    return sum(int(number) * size for number, size in zip(match.groups(), UNITS.values()) if number)


def render(seconds):
    """The shortest text that `parse` turns back into `seconds`, a whole number.

    Larger units first, no spaces, no unit with a zero, at most 23h, 59m and 59s. Zero is "0s"; a negative
    number is a ValueError.
    """
    if seconds < 0:
        raise ValueError("a duration cannot be negative")
    parts = []
    for unit, size in UNITS.items():
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
PY
cd /app && python3 -m unittest
