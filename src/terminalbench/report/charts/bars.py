"""Bars: one for each profile made of parts, or one for each class with a bar a profile."""

from collections.abc import Sequence
from dataclasses import dataclass

from terminalbench.report.charts.svg import SERIES, box, drawing, label, legend, linked
from terminalbench.text.foreign import short
from terminalbench.text.numbers import count, percent

_WIDTH = 400.0


@dataclass(frozen=True)
class BarPart:
    """A piece of a bar."""

    name: str
    value: float
    href: str | None = None


@dataclass(frozen=True)
class Bar:
    """A bar and its pieces; `note` stands at its end."""

    label: str
    parts: tuple[BarPart, ...]
    note: str = ""


def stacked_bars(rows: Sequence[Bar], title: str, unit: str) -> str:
    """Each bar is a whole, its pieces are shares; a piece keeps its colour and place in all bars."""
    names = list(dict.fromkeys(part.name for row in rows for part in row.parts))
    body: list[str] = []
    y = 6.0
    for row in rows:
        total = sum(part.value for part in row.parts)
        body += [label(2, y + 12, short(row.label, 34), "b"), label(_WIDTH - 2, y + 12, row.note, "dim e")]
        x = 0.0
        by_name = {part.name: part for part in row.parts}
        for index, name in enumerate(names):
            part = by_name.get(name)
            if part is None or not part.value or not total:
                continue
            width = _WIDTH * part.value / total
            share = percent(part.value / total)
            drawn = box(x, y + 18, width, 20, f"part s{index % SERIES}")
            if width > 46:
                text = f"{name} {share}" if width > 8.2 * (len(name) + 7) else share
                drawn += label(x + width / 2, y + 32, text, "on m")
            body.append(linked(part.href, f"{row.label}: {name} {_number(part.value)} {unit}, {share}", drawn))
            x += width
        y += 48
    return _with_legend(rows, names, title, unit, body, y)


def bars(rows: Sequence[Bar], series: Sequence[str], title: str, unit: str) -> str:
    """One group a row, one bar a series within it, all on one scale from zero. None is no bar."""
    most = max((part.value for row in rows for part in row.parts), default=1.0) or 1.0
    body: list[str] = []
    y = 6.0
    for row in rows:
        body += [label(2, y + 12, short(row.label, 44), "b"), label(_WIDTH - 2, y + 12, row.note, "dim e")]
        y += 18
        for part in (part for part in row.parts if part.value):
            index = series.index(part.name)
            width = max(1.5, (_WIDTH - 120) * part.value / most)
            drawn = box(0, y, width, 11, f"part s{index % SERIES}")
            drawn += label(width + 5, y + 10, f"{_number(part.value)} {short(part.name, 14)}")
            body.append(linked(part.href, f"{row.label}, {part.name}: {_number(part.value)} {unit}", drawn))
            y += 14
        y += 8
    return _with_legend(rows, series, title, unit, body, y)


def _with_legend(rows: Sequence[Bar], names: Sequence[str], title: str, unit: str, body: list[str], y: float) -> str:
    key, y = legend(names, _WIDTH, y + 10, boxes=True)
    says = "; ".join(f"{r.label}: " + ", ".join(f"{p.name} {p.value:g}" for p in r.parts) for r in rows)
    return drawing(_WIDTH, y, title, f"{says} ({unit}).", [*body, *key])


def _number(value: float) -> str:
    return count(int(value)) if value == int(value) else f"{value:g}"
