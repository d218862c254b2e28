"""Text that fits: cleaned, cut to cells, in columns that give way by their importance. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from terminalbench.text.foreign import ended, printable
from terminalbench.text.names import BADGE

GAP = 2


def clean(text: object) -> str:
    """Somebody else's text on one line, as text: no control character of it reaches the terminal."""
    return printable(str(text).replace("\t", " "))


def cut(text: str, width: int) -> str:
    """`text` in at most `width` cells, the cut marked. The badge of a profile stays, where there is room for it."""
    if cell_len(text) <= width:
        return text
    end = BADGE if text.endswith(BADGE) and width > len(BADGE) + 1 else ""
    room = max(0, width - 1 - len(end))
    return f"{set_cell_size(text.removesuffix(end), room).rstrip()}…{end}" if width > 0 else ""


def sentence(text: str, width: int) -> str:
    """A text of words in at most `width` cells, the cut marked, and between words."""
    if cell_len(text) <= width:
        return text
    return ended(text, set_cell_size(text, width - 1).rstrip()) if width > 1 else cut(text, width)


@dataclass(frozen=True)
class Column:
    """One column: its title, what stands in it of an item, how soon it gives way (0 = never), a shorter title.

    A `flexible` one is cut down to `least` cells before any other column gives way. One that is not `added` up is empty
    in a line of totals.
    """

    title: str
    value: Callable[[Any], Text | str]
    importance: int = 0
    short: str | None = None
    right: bool = False
    flexible: bool = False
    least: int = 8
    added: bool = True

    def cell(self, item: Any) -> Text:
        """Return what stands in the line of an item; a text without a style is made printable."""
        value = self.value(item)
        return value if isinstance(value, Text) else Text(clean(value))


@dataclass(frozen=True)
class ScreenRow:
    """The fields of a line, and a style for all of it."""

    cells: Sequence[Text]
    style: str = ""


def table(
    columns: Sequence[Column],
    items: Iterable[Any],
    width: int,
    *,
    narrow: bool | None = None,
    style: Callable[[Any], str] = lambda _item: "",
    total: Any = None,
) -> list[Text]:
    """Lines of at most `width` cells, one an item, and one of the `total`, if there is one.

    With `narrow` True or False there is a head of short or full titles, without it none.
    """
    titles = [Text(column.short if narrow and column.short is not None else column.title) for column in columns]
    rows = [] if narrow is None else [ScreenRow(titles, "bold")]
    rows += [ScreenRow([column.cell(item) for column in columns], style(item)) for item in items]
    if total is not None:
        rows.append(ScreenRow([column.cell(total) if column.added else Text() for column in columns], "bold"))
    shown = _fitting(columns, rows, width)
    return [_line(columns, row, shown, width) for row in rows]


def _fitting(columns: Sequence[Column], rows: Sequence[ScreenRow], width: int) -> dict[int, int]:
    """Return which columns fit into `width`, with the width of each; the least important go first."""
    natural = {i: max((row.cells[i].cell_len for row in rows), default=0) for i in range(len(columns))}
    smallest = {i: min(natural[i], column.least) if column.flexible else natural[i] for i, column in enumerate(columns)}
    shown = {i: cells for i, cells in natural.items() if cells}
    for i in sorted(range(len(columns)), key=lambda i: (-columns[i].importance, -i)):
        if sum(smallest[k] for k in shown) + GAP * (len(shown) - 1) <= width or not columns[i].importance:
            break
        shown.pop(i, None)
    for i in sorted(
        (i for i, cells in natural.items() if cells and i not in shown), key=lambda i: columns[i].importance
    ):
        if sum(shown.values()) + natural[i] + GAP * len(shown) <= width:
            shown[i] = natural[i]
    shown = dict(sorted(shown.items()))
    over = sum(shown.values()) + GAP * (len(shown) - 1) - width
    for i in sorted((i for i in shown if columns[i].flexible), key=lambda i: -shown[i]):
        less = max(0, min(over, shown[i] - smallest[i]))
        shown[i] -= less
        over -= less
    return shown


def _line(columns: Sequence[Column], row: ScreenRow, shown: dict[int, int], width: int) -> Text:
    line = Text(style=row.style, no_wrap=True)
    for i, cells in shown.items():
        line.append(" " * GAP if line else "")
        text = cut(row.cells[i].plain, cells)
        space = " " * (cells - cell_len(text))
        line.append(space + text if columns[i].right else text + space, row.cells[i].style)
    line.rstrip()
    return fit(line, width)


@dataclass(frozen=True)
class LinePiece:
    """A part of a line that may give way: the highest `importance` first, 0 never."""

    text: str
    importance: int = 0
    style: str = ""


def joined(pieces: Sequence[LinePiece], width: int, gap: str = "  ") -> Text:
    """Join as many pieces as fit into one line."""
    kept = [piece for piece in pieces if piece.text]
    while len(kept) > 1 and sum(cell_len(p.text) for p in kept) + cell_len(gap) * (len(kept) - 1) > width:
        least = max(kept, key=lambda piece: piece.importance)
        if not least.importance:
            break
        kept.remove(least)
    line = Text(no_wrap=True)
    for number, piece in enumerate(kept):
        line.append(gap if number else "")
        line.append(piece.text, piece.style)
    return fit(line, width)


def fit(line: Text, width: int) -> Text:
    """The line, cut to `width` cells."""
    if line.cell_len > width:
        line.truncate(width, overflow="ellipsis")
    return line
