"""Durations as people write them: 2d4h, 1h30m, 45s."""

import re

UNITS = {"d": 24 * 60, "h": 3600, "m": 60, "s": 1}


def parse(text):
    """The seconds in `text`, an int.

    `text` is one or more groups of a whole number and a unit. The units are d, h, m and s; each may appear
    at most once, and they come in that order. Spaces around and between groups are allowed, not inside one.
    Anything else, the empty text included, is a ValueError.
    """
    total = 0
    for number, unit in re.findall(r"(\d+)([dhms])", text):
        total += int(number) * UNITS[unit]
    return total


def render(seconds):
    """The shortest text that `parse` turns back into `seconds`, a whole number.

    Larger units first, no spaces, no unit with a zero, at most 23h, 59m and 59s. Zero is "0s"; a negative
    number is a ValueError.
    """
    parts = []
    for unit, size in UNITS.items():
        count, seconds = divmod(seconds, size)
        if count > 1:
            parts.append(f"{count}{unit}")
    return "".join(parts)
