"""Tasks down, profiles across; the shade is the pass rate, each attempt is a mark of its own."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from terminalbench.records.trial import Outcome
from terminalbench.report.charts.svg import box, drawing, label, linked, num
from terminalbench.text.foreign import short
from terminalbench.text.numbers import plural
from terminalbench.text.outcomes import word

MOST_MARKS = 10
_ROW, _STEP, _LEAST_LABEL, _HEAD = 22, 14, 150, 26
_MOST_LETTERS = 64


@dataclass(frozen=True)
class HeatCell:
    """One profile on one task: how each attempt ended, in order."""

    outcomes: tuple[Outcome, ...]
    href: str | None = None

    @property
    def rate(self) -> float | None:
        """Passed over measured; None when nothing was measured."""
        measured = [o for o in self.outcomes if o.measured]
        return measured.count(Outcome.PASSED) / len(measured) if measured else None


@dataclass(frozen=True)
class HeatRow:
    """One task: its name and a cell for each profile, in the order of the profiles."""

    label: str
    cells: tuple[HeatCell, ...]
    href: str | None = None


def heat_map(profiles: Sequence[str], rows: Sequence[HeatRow], title: str = "Tasks by profile") -> str:
    """The map with its legend."""
    most = max((len(cell.outcomes) for row in rows for cell in row.cells), default=1)
    longest = max((len(name) for name in profiles), default=0)
    column = max(58.0, _STEP * min(most, MOST_MARKS) + 14, 7.4 * min(longest, 16) + 8)
    names = [short(row.label, _MOST_LETTERS) for row in rows]
    side = max(_LEAST_LABEL, 7.0 * max(map(len, names), default=0) + 8)
    width = side + column * len(profiles) + 4
    width = max(width, 340)
    letters = int((column - 8) / 8.2) if longest > 16 else 16
    body = [label(side + column * (i + 0.5), 16, short(name, letters), "b m") for i, name in enumerate(profiles)]
    y = float(_HEAD)
    for row, name in zip(rows, names, strict=True):
        body.append(linked(row.href, row.label, label(2, y + 15, name)))
        for index, cell in enumerate(row.cells):
            text = f"{row.label}, {profiles[index]}: {spoken(cell.outcomes)}"
            body.append(linked(cell.href, text, _cell(cell, side + column * index + 2, y + 1, column - 4)))
        y += _ROW
    key, y = _legend(width, y + 20)
    description = "; ".join(
        f"{name}: {spoken(tuple(o for row in rows for o in row.cells[i].outcomes))}" for i, name in enumerate(profiles)
    )
    return drawing(width, y, title, f"{plural(len(rows), 'task')}. {description}.", [*body, *key], whole=True)


def spoken(outcomes: Sequence[Outcome]) -> str:
    """Return what a cell shows, in words."""
    counts = Counter(outcomes)
    return ", ".join(f"{counts[o]} {word(o)}" for o in Outcome if counts[o]) or "nothing planned"


def _cell(cell: HeatCell, x: float, y: float, width: float) -> str:
    if not cell.outcomes:
        return ""
    height = _ROW - 2
    if cell.rate is None:
        parts = [box(x, y, width, height, "void")]
    else:
        shade = f'<rect class="heat" x="{num(x)}" y="{num(y)}" width="{num(width)}" height="{height}"'
        parts = [box(x, y, width, height, "frame"), f'{shade} opacity="{0.06 + 0.49 * cell.rate:.2f}"/>']
    middle = y + height / 2
    if len(cell.outcomes) > MOST_MARKS:
        counts = Counter(cell.outcomes)
        measured = counts[Outcome.PASSED] + counts[Outcome.FAILED]
        lost = f" ▲{len(cell.outcomes) - measured}" if len(cell.outcomes) > measured else ""
        return "".join([*parts, label(x + width / 2, middle + 4, f"{counts[Outcome.PASSED]}/{measured}{lost}", "m")])
    start = x + width / 2 - _STEP * (len(cell.outcomes) - 1) / 2
    return "".join([*parts, marks(cell.outcomes, start, middle, _STEP)])


_DISC = "a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0"
_MARKS = {
    Outcome.PASSED: ("solid", f"m-4.5 0{_DISC}z"),
    Outcome.FAILED: ("stroke", "m-4-4l8 8m0-8l-8 8"),
    Outcome.TIMED_OUT: ("stroke", f"m-4.5 0{_DISC}m4.5-3v3h2.5"),
    Outcome.ERRORED: ("solid", "m0-5l5 9h-10z"),
    Outcome.CANCELLED: ("stroke", "m-4 0h8"),
    Outcome.NOT_RUN: ("solid", "m-1.3 0a1.3 1.3 0 1 0 2.6 0a1.3 1.3 0 1 0-2.6 0z"),
}


def marks(outcomes: Sequence[Outcome], x: float, y: float, step: float) -> str:
    """One mark an attempt, told apart by shape alone: disc, cross, clock, triangle, dash, dot."""
    solid: list[str] = []
    stroke: list[str] = []
    for index, outcome in enumerate(outcomes):
        way, path = _MARKS.get(outcome, _MARKS[Outcome.NOT_RUN])
        (solid if way == "solid" else stroke).append(f"M{num(x + index * step)} {num(y)}{path}")
    drawn = f'<path class="solid" d="{"".join(solid)}"/>' if solid else ""
    return drawn + (f'<path class="stroke" d="{"".join(stroke)}"/>' if stroke else "")


def _legend(width: float, y: float) -> tuple[list[str], float]:
    parts: list[str] = []
    x = 8.0
    for outcome in Outcome:
        needs = 26 + 6.4 * len(word(outcome))
        if x > 8 and x + needs > width:
            x, y = 8.0, y + 18
        parts += [marks((outcome,), x, y - 4, 0), label(x + 11, y, word(outcome))]
        x += needs
    parts.append(label(2, y + 20, "shade: share passed of those measured", "dim"))
    parts.append(label(2, y + 36, "dashed frame: nothing measured", "dim"))
    return parts, y + 42
