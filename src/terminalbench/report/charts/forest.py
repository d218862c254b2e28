"""Differences with their intervals, one below the other, around zero."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from terminalbench.report.charts.svg import box, drawing, label, line, linked, nice_ticks, num
from terminalbench.text.foreign import short, visible
from terminalbench.text.numbers import Metric, amount, between

_WIDTH, _ROW, _LABEL, _SIDE = 400.0, 46.0, 18.0, 22.0
_UNITS = {"pass": ", pt", "tokens": ", tokens"}
"""What the numbers on the axis leave out."""


@dataclass(frozen=True)
class ForestRow:
    """One contrast, with its interval on tasks like these."""

    label: str
    verdict: str
    value: float | None
    low: float | None = None
    high: float | None = None
    href: str | None = None


def forest(rows: Sequence[ForestRow], metric: Metric, margin: float | None = None, title: str = "Differences") -> str:
    """The plot of differences of a metric. `margin` shades what would count as no difference."""
    low, high = _range(rows, margin)
    ticks = nice_ticks(low, high, 5)
    low, high = ticks[0], ticks[-1]

    def at(value: float) -> float:
        return _SIDE + (_WIDTH - 2 * _SIDE) * (value - low) / (high - low)

    bottom = 8 + _ROW * len(rows)
    body = []
    tops = [8 + _ROW * index + _LABEL for index in range(len(rows))]  # no line goes through the words of a row
    if margin:
        body += [box(at(-margin), top, at(margin) - at(-margin), _ROW - _LABEL, "margin") for top in tops]
    for tick in ticks:
        kind = "zero" if tick == 0 else "grid"
        body += [line(at(tick), top, at(tick), top + _ROW - _LABEL, kind) for top in tops]
        body.append(label(at(tick), bottom + 14, _tick(tick, metric), "dim m"))
    for index, row in enumerate(rows):
        body.append(linked(row.href, says(row, metric), _row(row, metric, 8 + _ROW * index, at)))
    body.append(label(_WIDTH / 2, bottom + 30, f"difference{_UNITS.get(metric, '')}", "dim m"))
    notes = [
        "■ better or worse   ◆ equivalent   □ inconclusive",
        "line: the interval of the difference on tasks like these",
    ]
    if margin:
        notes.append(f"grey band: within the margin of {amount(margin, metric, sign=False)}")
    body += [label(_WIDTH / 2, bottom + 48 + 15 * index, note, "dim m") for index, note in enumerate(notes)]
    description = " ".join(f"{says(row, metric)}." for row in rows)
    return drawing(_WIDTH, bottom + 41 + 15 * len(notes), title, description, body)


def says(row: ForestRow, metric: Metric) -> str:
    """One row in words."""
    return f"{visible(row.label)}: {_numbers(row, metric)}, {row.verdict}"


def _numbers(row: ForestRow, metric: Metric, *, unit: bool = True) -> str:
    if row.value is None:
        return "no estimate"
    ends = "" if row.low is None or row.high is None else f" ({between(row.low, row.high, metric, unit=False)})"
    return amount(row.value, metric, unit=unit) + ends


def _tick(value: float, metric: Metric) -> str:
    """A round step of the axis."""
    if not value:
        return "0"
    return f"{100 * value:+g}" if metric == "pass" else amount(value, metric, unit=False)


def _range(rows: Sequence[ForestRow], margin: float | None) -> tuple[float, float]:
    values = [0.0, margin or 0.0, -(margin or 0.0)]
    for row in rows:
        values += [v for v in (row.value, row.low, row.high) if v is not None]
    low, high = min(values), max(values)
    return (low, high) if high > low else (-1.0, 1.0)


def _row(row: ForestRow, metric: Metric, y: float, at: Callable[[float], float]) -> str:
    parts = [
        box(0, y, _WIDTH, _ROW - 4, "hit"),
        label(2, y + 14, _both(row.label), "b halo"),
        label(_WIDTH - 6, y + 14, _numbers(row, metric, unit=False), "e halo"),
    ]
    middle = y + 29
    if row.low is not None and row.high is not None:
        parts.append(line(at(row.low), middle, at(row.high), middle, "thin"))
        parts += [line(at(end), middle - 4, at(end), middle + 4, "thin") for end in (row.low, row.high)]
    if row.value is not None:
        parts.append(_sign(row.verdict, at(row.value), middle))
    return "".join(parts)


def _both(text: str, letters: int = 34) -> str:
    """The names of both profiles, each shortened by itself: a contrast must stay recognisable."""
    new, versus, old = text.partition(" vs ")
    if len(text) <= letters or not versus:
        return short(text, letters)
    room = letters - len(versus)
    shorter = min(len(new), len(old), room // 2)
    ours = shorter if len(new) <= len(old) else room - shorter
    return f"{short(new, ours)}{versus}{short(old, room - ours)}"


def _sign(verdict: str, x: float, y: float) -> str:
    if verdict == "equivalent":
        return f'<path class="solid" d="M{num(x)} {num(y - 6)}l6 6l-6 6l-6-6z"/>'
    kind = {"better": "good", "worse": "bad"}.get(verdict, "hollow")
    return box(x - 5, y - 5, 10, 10, kind)
