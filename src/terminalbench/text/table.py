"""The columns of a table, declared once for every surface; aligned columns; lines that fit the terminal."""

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from terminalbench.text.foreign import printable, short

_FIRST_COLUMN = re.compile(r"\s*\S.*? {2,}")
_DEEPER = "  "


class TableRows(NamedTuple):
    """A table as text, Markdown and HTML write it."""

    head: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Columns[T]:
    """The columns of a table by their headings, each with what stands in it for an item."""

    cells: Mapping[str, Callable[[T], str]]

    def of(self, items: Iterable[T]) -> TableRows:
        """Return the table of some items."""
        return TableRows(list(self.cells), [[cell(item) for cell in self.cells.values()] for item in items])


def columns(rows: Sequence[Sequence[str]], left: Iterable[int] = (0,)) -> str:
    """Rows as aligned columns; those in `left` to the left, the others to the right."""
    rows = _clean(rows)
    to_left = set(left)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        fields = [
            f"{v:<{w}}" if i in to_left else f"{v:>{w}}" for i, (v, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(fields).rstrip())
    return "\n".join(lines)


def fitted(rows: Sequence[Sequence[str]], left: Sequence[int], width: int) -> str:
    """A table of at most `width` columns. Where it is wider: two, both with the first column.

    Where that does not do, what stands first and last in a row is a line of its own, and the columns between follow
    below it, on as many lines as they take.
    """
    rows = _clean(rows)
    table = columns(rows, left)
    if _width(table) <= width:
        return table
    parts = _parts(rows, left, width)
    if len(parts) == 2 and all(_width(part) <= width for part in parts):
        return "\n\n".join(parts)
    groups = [_picked(rows, group, left) for group in _groups(rows, width - 2)]
    shown = []
    for row, *below in zip(rows, *(group.split("\n") for group in groups), strict=True):
        last = row[-1].strip(" -")
        head = [f"{row[0]}  ({last})" if last else row[0]]
        if len(head[0]) > width:
            head = [short(part, width) for part in (row[0], f"({last})" if last else "") if part]
        shown += [*head, *(f"  {line}".rstrip() for line in below)]
    return "\n".join(shown)


def _parts(rows: Sequence[Sequence[str]], left: Sequence[int], width: int) -> list[str]:
    """The table side by side, cut into parts: the first column stands in each, the last in the last."""
    first = max(len(row[0]) for row in rows)
    groups = _groups(rows, width - first - 2)
    if groups and any(row[-1] for row in rows):
        groups[-1].append(len(rows[0]) - 1)
    return [_picked(rows, [0, *group], left) for group in groups]


def _picked(rows: Sequence[Sequence[str]], places: Sequence[int], left: Sequence[int]) -> str:
    """Some columns of a table."""
    return columns([[row[p] for p in places] for row in rows], [i for i, p in enumerate(places) if p in left])


def _width(table: str) -> int:
    return max(map(len, table.splitlines()))


def _clean(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The fields as they are shown: one that holds a line end must not make a row."""
    return [[printable(field) for field in row] for row in rows]


def _groups(rows: Sequence[Sequence[str]], width: int) -> list[list[int]]:
    """The columns between the first and the last, as many side by side as fit."""
    found: list[list[int]] = []
    room = 0
    for place in range(1, len(rows[0]) - 1):
        needed = 2 + max(len(row[place]) for row in rows)
        if not found or needed > room:
            found.append([])
            room = width + 2
        found[-1].append(place)
        room -= needed
    return found


def wrapped(lines: Iterable[str], width: int, *, whole_words: bool = True) -> list[str]:
    """Lines of which long ones go on below their second column, or a little deeper where they have one column.

    A word that is longer than a line stays whole, as a path or a command that is cut is of no use, unless `whole_words`
    is false.
    """
    return [part for line in lines for part in _lines(line, width, whole_words=whole_words)]


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


def _lines(line: str, width: int, *, whole_words: bool) -> list[str]:
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
        break_long_words=not whole_words,
        break_on_hyphens=False,
        replace_whitespace=False,
    )
