"""Values of profiles in rows: bars, rates and differences with their intervals, times as they are spread."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from terminalbench.report.charts.svg import (
    SERIES,
    box,
    compact,
    drawing,
    label,
    legend,
    line,
    linked,
    marker,
    nice_ticks,
    num,
)
from terminalbench.text.foreign import short, visible
from terminalbench.text.numbers import Metric, amount, between, count, duration, percent, percents

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


_AXIS_WIDTH, _LEFT, _RIGHT, _ROW = 460.0, 8.0, 8.0, 44.0
_DOTS = 200


@dataclass(frozen=True)
class RateRow:
    """The pass rate of a profile, and what it is counted over."""

    label: str
    rate: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""


@dataclass(frozen=True)
class SpreadRow:
    """Values of one profile, in seconds."""

    label: str
    values: tuple[float, ...]


def rates(rows: Sequence[RateRow], title: str = "Pass rate") -> str:
    """A dot and its interval for each profile, on one scale from 0 to 100 %."""

    def at(share: float) -> float:
        return _LEFT + share * (_AXIS_WIDTH - _LEFT - _RIGHT)

    height = 8 + _ROW * len(rows)
    body = [line(at(tick / 4), 4, at(tick / 4), height, "grid") for tick in range(5)]
    body += _numbers([(at(tick / 4), f"{25 * tick} %") for tick in range(5)], height + 14)
    for index, row in enumerate(rows):
        y = 8 + _ROW * index
        said = percent(row.rate) + (
            f" ({percents(row.low, row.high)})" if row.low is not None and row.high is not None else ""
        )
        drawn = label(_LEFT, y + 12, short(row.label, 34), "b") + label(
            _AXIS_WIDTH - _RIGHT, y + 12, f"{said} {row.note}", "dim e"
        )
        if row.low is not None and row.high is not None:
            drawn += line(at(row.low), y + 26, at(row.high), y + 26, "stroke")
        if row.rate is not None:
            drawn += marker(index, at(row.rate), y + 26, 5, "mark")
        body.append(linked(None, f"{row.label}: {said} {row.note}", drawn))
    told = "; ".join(f"{row.label} {percent(row.rate)}" for row in rows)
    return drawing(_AXIS_WIDTH, height + 22, title, told, body)


def _numbers(ticks: Sequence[tuple[float, str]], y: float) -> list[str]:
    """Return the numbers of an axis as wide as the picture: the outer two stay inside of it."""
    places = ["dim", *["dim m"] * (len(ticks) - 2), "dim e"]
    return [label(x, y, text, place) for (x, text), place in zip(ticks, places, strict=True)]


def spread(rows: Sequence[SpreadRow], title: str, unit: str) -> str:
    """A dot for each value and a mark at the median, one line a profile, all on one scale from zero."""
    most = max((value for row in rows for value in row.values), default=1.0) or 1.0
    ticks = nice_ticks(0.0, most)
    end = max(ticks[-1], most)

    def at(value: float) -> float:
        return _LEFT + value / end * (_AXIS_WIDTH - _LEFT - _RIGHT)

    height = 8 + _ROW * len(rows)
    body = [line(at(tick), 4, at(tick), height, "grid") for tick in ticks]
    body += _numbers([(at(tick), compact(tick)) for tick in ticks], height + 14)
    for index, row in enumerate(rows):
        y, values = 8 + _ROW * index, sorted(row.values)
        middle = median(values) if values else None
        said = f"median {duration(middle)} of {len(values)}" if middle is not None else "none known"
        drawn = label(_LEFT, y + 12, short(row.label, 34), "b") + label(_AXIS_WIDTH - _RIGHT, y + 12, said, "dim e")
        some = values if len(values) <= _DOTS else [values[n * len(values) // _DOTS] for n in range(_DOTS)]
        drawn += "".join(marker(index, at(value), y + 28, 3, "mark") for value in some)
        drawn += line(at(middle), y + 18, at(middle), y + 38, "axis") if middle is not None else ""
        body.append(linked(None, f"{row.label}: {said}", drawn))
    body.append(label(_AXIS_WIDTH / 2, height + 30, unit, "dim m"))
    told = "; ".join(f"{row.label} {duration(median(row.values)) if row.values else 'unknown'}" for row in rows)
    return drawing(_AXIS_WIDTH, height + 38, f"{title}, {unit}", told, body)


_FOREST_ROW, _FOREST_LABEL, _SIDE = 46.0, 18.0, 22.0
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
    low, high = _reach(rows, margin)
    ticks = nice_ticks(low, high, 5)
    low, high = ticks[0], ticks[-1]

    def at(value: float) -> float:
        return _SIDE + (_WIDTH - 2 * _SIDE) * (value - low) / (high - low)

    bottom = 8 + _FOREST_ROW * len(rows)
    body = []
    tops = [
        8 + _FOREST_ROW * index + _FOREST_LABEL for index in range(len(rows))
    ]  # no line goes through the words of a row
    if margin:
        body += [box(at(-margin), top, at(margin) - at(-margin), _FOREST_ROW - _FOREST_LABEL, "margin") for top in tops]
    for tick in ticks:
        kind = "zero" if tick == 0 else "grid"
        body += [line(at(tick), top, at(tick), top + _FOREST_ROW - _FOREST_LABEL, kind) for top in tops]
        body.append(label(at(tick), bottom + 14, _tick(tick, metric), "dim m"))
    for index, row in enumerate(rows):
        body.append(linked(row.href, says(row, metric), _row(row, metric, 8 + _FOREST_ROW * index, at)))
    body.append(label(_WIDTH / 2, bottom + 30, f"difference{_UNITS.get(metric, '')}", "dim m"))
    notes = ["■ better or worse   ◆ equivalent   □ inconclusive"]
    notes.append("line: the interval of the difference on tasks like these")
    if margin:
        notes.append(f"grey band: within the margin of {amount(margin, metric, sign=False)}")
    body += [label(_WIDTH / 2, bottom + 48 + 15 * index, note, "dim m") for index, note in enumerate(notes)]
    description = " ".join(f"{says(row, metric)}." for row in rows)
    return drawing(_WIDTH, bottom + 41 + 15 * len(notes), title, description, body)


def says(row: ForestRow, metric: Metric) -> str:
    """One row in words."""
    return f"{visible(row.label)}: {_difference(row, metric)}, {row.verdict}"


def _difference(row: ForestRow, metric: Metric, *, unit: bool = True) -> str:
    if row.value is None:
        return "no estimate"
    ends = "" if row.low is None or row.high is None else f" ({between(row.low, row.high, metric, unit=False)})"
    return amount(row.value, metric, unit=unit) + ends


def _tick(value: float, metric: Metric) -> str:
    """A round step of the axis."""
    if not value:
        return "0"
    return f"{100 * value:+g}" if metric == "pass" else amount(value, metric, unit=False)


def _reach(rows: Sequence[ForestRow], margin: float | None) -> tuple[float, float]:
    ends = [end for row in rows for end in (row.value, row.low, row.high) if end is not None]
    values = [0.0, margin or 0.0, -(margin or 0.0), *ends]
    low, high = min(values), max(values)
    return (low, high) if high > low else (-1.0, 1.0)


def _row(row: ForestRow, metric: Metric, y: float, at: Callable[[float], float]) -> str:
    said = _difference(row, metric, unit=False)
    parts = [
        box(0, y, _WIDTH, _FOREST_ROW - 4, "hit"),
        label(2, y + 14, _both(row.label, min(34, 54 - len(said))), "b halo"),
        label(_WIDTH - 6, y + 14, said, "e halo"),
    ]
    middle = y + 29
    if row.low is not None and row.high is not None:
        parts.append(line(at(row.low), middle, at(row.high), middle, "thin"))
        parts += [line(at(end), middle - 4, at(end), middle + 4, "thin") for end in (row.low, row.high)]
    if row.value is not None:
        parts.append(_sign(row.verdict, at(row.value), middle))
    return "".join(parts)


def _both(text: str, letters: int) -> str:
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
