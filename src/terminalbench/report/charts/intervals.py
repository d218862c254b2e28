"""Rates with their intervals, one line a profile, and times as they are spread: a dot a trial, the median marked."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from terminalbench.report.charts.svg import compact, drawing, label, line, linked, marker, nice_ticks
from terminalbench.text.foreign import short
from terminalbench.text.numbers import duration, percent, percents

_WIDTH, _LEFT, _RIGHT, _ROW = 460.0, 8.0, 8.0, 44.0
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
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    height = 8 + _ROW * len(rows)
    body = [line(at(tick / 4), 4, at(tick / 4), height, "grid") for tick in range(5)]
    body += _numbers([(at(tick / 4), f"{25 * tick} %") for tick in range(5)], height + 14)
    for index, row in enumerate(rows):
        y = 8 + _ROW * index
        said = percent(row.rate) + (
            f" ({percents(row.low, row.high)})" if row.low is not None and row.high is not None else ""
        )
        drawn = label(_LEFT, y + 12, short(row.label, 34), "b") + label(
            _WIDTH - _RIGHT, y + 12, f"{said} {row.note}", "dim e"
        )
        if row.low is not None and row.high is not None:
            drawn += line(at(row.low), y + 26, at(row.high), y + 26, "stroke")
        if row.rate is not None:
            drawn += marker(index, at(row.rate), y + 26, 5, "mark")
        body.append(linked(None, f"{row.label}: {said} {row.note}", drawn))
    told = "; ".join(f"{row.label} {percent(row.rate)}" for row in rows)
    return drawing(_WIDTH, height + 22, title, told, body)


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
        return _LEFT + value / end * (_WIDTH - _LEFT - _RIGHT)

    height = 8 + _ROW * len(rows)
    body = [line(at(tick), 4, at(tick), height, "grid") for tick in ticks]
    body += _numbers([(at(tick), compact(tick)) for tick in ticks], height + 14)
    for index, row in enumerate(rows):
        y, values = 8 + _ROW * index, sorted(row.values)
        middle = median(values) if values else None
        said = f"median {duration(middle)} of {len(values)}" if middle is not None else "none known"
        drawn = label(_LEFT, y + 12, short(row.label, 34), "b") + label(_WIDTH - _RIGHT, y + 12, said, "dim e")
        some = values if len(values) <= _DOTS else [values[n * len(values) // _DOTS] for n in range(_DOTS)]
        drawn += "".join(marker(index, at(value), y + 28, 3, "mark") for value in some)
        drawn += line(at(middle), y + 18, at(middle), y + 38, "axis") if middle is not None else ""
        body.append(linked(None, f"{row.label}: {said}", drawn))
    body.append(label(_WIDTH / 2, height + 30, unit, "dim m"))
    told = "; ".join(f"{row.label} {duration(median(row.values)) if row.values else 'unknown'}" for row in rows)
    return drawing(_WIDTH, height + 38, f"{title}, {unit}", told, body)
