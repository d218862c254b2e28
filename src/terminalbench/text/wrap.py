"""Lines that fit the terminal."""

import re
import textwrap
from collections.abc import Iterable

_FIRST_COLUMN = re.compile(r"\s*\S.*? {2,}")
_DEEPER = "  "


def wrapped(lines: Iterable[str], width: int) -> list[str]:
    """Lines of which long ones go on below their second column, or a little deeper where they have one column.

    A word that is longer than a line stays whole: a path or a command that is cut is of no use.
    """
    return [part for line in lines for part in _lines(line, width)]


def wrapped_command(command: str, width: int, indent: str) -> list[str]:
    """A command over several lines that a shell takes as one, broken before its options."""
    lines = [indent]
    for place, part in enumerate(re.split(r" (?=--?[a-z])", command)):
        joined = f"{lines[-1]} {part}" if place else f"{indent}{part}"
        if place and len(joined) > width - 2:
            lines.append(f"{indent}{_DEEPER}{part}")
        else:
            lines[-1] = joined
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


def _lines(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    column = _FIRST_COLUMN.match(line)
    indent = len(line) - len(line.lstrip()) + len(_DEEPER)
    if column is not None and column.end() <= width // 2:
        indent = column.end()
    return textwrap.wrap(
        line,
        width,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )
