"""Points on two axes: pass rate against cost, any number against any other, and rates from batch to batch."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from terminalbench.report.charts.svg import (
    SERIES,
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
from terminalbench.text.foreign import short
from terminalbench.text.numbers import dollars, percent, plural

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 400.0, 268.0, 46.0, 24.0, 30.0, 40.0


@dataclass(frozen=True)
class FrontPoint:
    """One profile: what a trial costs and what share passes, with the interval of that share."""

    label: str
    cost: float
    rate: float
    low: float | None = None
    high: float | None = None
    on_front: bool = False
    href: str | None = None


@dataclass(frozen=True)
class Dot:
    """One or more trials of one series at one place."""

    series: int
    x: float
    y: float
    count: int = 1
    text: str = ""
    href: str | None = None


def pareto(points: Sequence[FrontPoint], x_label: str, title: str = "Pass rate against cost") -> str:
    """Profiles by cost and pass rate. The dashed line joins those that no other profile beats on both."""
    x_at, x_ticks = _linear([0.0, *(p.cost for p in points)], _LEFT, _WIDTH - _RIGHT)
    y_at, y_ticks = _linear([0.0, 1.0], _HEIGHT - _BOTTOM, _TOP)
    body = _frame(x_ticks, y_ticks, x_at, y_at, lambda v: f"${v:g}", lambda v: f"{100 * v:g} %")
    body.append(label((_LEFT + _WIDTH) / 2, _HEIGHT - 8, x_label, "dim m"))
    body.append(label(2, 10, "pass rate", "dim"))
    front = sorted((p for p in points if p.on_front), key=lambda p: p.cost)
    if len(front) > 1:
        path = "L".join(f"{num(x_at(p.cost))} {num(y_at(p.rate))}" for p in front)
        body.append(f'<path class="front" d="M{path}"/>')
    numbered = len(points) > SERIES  # their signs repeat
    names = _placed(
        [(x_at(p.cost), y_at(p.rate), f"{i + 1}" if numbered else short(p.label, 18)) for i, p in enumerate(points)],
        [
            (x_at(p.cost) - 2, y_at(p.high), x_at(p.cost) + 2, y_at(p.low))
            for p in points
            if p.low is not None and p.high is not None
        ],
    )
    for index, point in enumerate(points):
        drawn = _with_interval(index, point.rate, point.low, point.high, x_at(point.cost), y_at, 6) + names[index]
        body.append(linked(point.href, _point_says(point), drawn))
    called = [
        f"{f'{i + 1} ' if numbered else ''}{short(p.label, 26)}{' (best for its cost)' if p.on_front else ''}"
        for i, p in enumerate(points)
    ]
    key, end = legend(called, _WIDTH, _HEIGHT + 12)
    description = " ".join(f"{_point_says(p)}." for p in points)
    return drawing(_WIDTH, end, title, description, [*body, *key])


def _with_interval(
    series: int,
    rate: float,
    low: float | None,
    high: float | None,
    x: float,
    y_at: Callable[[float], float],
    size: float,
) -> str:
    ends = line(x, y_at(low), x, y_at(high), "thin") if low is not None and high is not None else ""
    return ends + marker(series, x, y_at(rate), size, "mark")


type _Box = tuple[float, float, float, float]


def _placed(points: Sequence[tuple[float, float, str]], lines: Sequence[_Box] = ()) -> list[str]:
    """A name beside each point, nearer to it than to any other, where it covers nothing; else the legend has to do."""
    taken: list[_Box] = [*((x - 8, y - 8, x + 8, y + 8) for x, y, _ in points), *lines]
    drawn = []
    for x, y, text in points:
        drawn.append("")
        wide = 7.0 * len(text)
        others = [(a, b) for a, b, _ in points if (a, b) != (x, y)]
        spots = (("", x + 11, y + 4), ("e", x - 11, y + 4), ("", x + 11, y - 7), ("e", x - 11, y - 7),
                 ("", x + 11, y + 15), ("e", x - 11, y + 15), ("m", x, y - 13), ("m", x, y + 22))  # fmt: skip
        for anchor, at, base in spots:
            left = at - {"": 0.0, "e": wide, "m": wide / 2}[anchor]
            spot = (left, base - 11, left + wide, base + 3)
            if left < _LEFT or left + wide > _WIDTH or any(_overlap(spot, other) for other in taken):
                continue
            if any(_distance(spot, other) <= _distance(spot, (x, y)) for other in others):
                continue
            taken.append(spot)
            drawn[-1] = label(at, base, text, f"{anchor} halo".strip())
            break
    return drawn


def _overlap(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _distance(spot: _Box, point: tuple[float, float]) -> float:
    """Return the distance from a box to a point outside of it."""
    x, y = point
    return math.hypot(max(spot[0] - x, 0.0, x - spot[2]), max(spot[1] - y, 0.0, y - spot[3]))


def _point_says(point: FrontPoint) -> str:
    front = ", which means that no profile is better for less" if point.on_front else ""
    return f"{point.label}: {percent(point.rate)} at {dollars(point.cost)}{front}"


def scatter(series: Sequence[str], dots: Sequence[Dot], x_label: str, y_label: str, title: str) -> str:
    """Dots of several series; the area of a dot is how many trials share the place. x is logarithmic when it spans."""
    xs, ys = [d.x for d in dots], [d.y for d in dots]
    spread = bool(xs) and min(xs) > 0 and max(xs) / min(xs) > 30
    x_at, x_ticks = (_logarithmic if spread else _linear)(xs, _LEFT, _WIDTH - _RIGHT)
    y_at, y_ticks = _linear([0.0, *ys], _HEIGHT - _BOTTOM, _TOP)
    if all(y == int(y) for y in ys):
        y_ticks = [tick for tick in y_ticks if tick == int(tick)]
    body = _frame(x_ticks, y_ticks, x_at, y_at, compact, compact)
    body.append(label((_LEFT + _WIDTH) / 2, _HEIGHT - 8, x_label + (" (logarithmic)" if spread else ""), "dim m"))
    body.append(label(2, 10, y_label, "dim"))
    most = max((d.count for d in dots), default=1)
    for dot in sorted(dots, key=lambda d: -d.count):
        size = 3.2 if most == 1 else 2.5 + 6 * math.sqrt(dot.count / most)
        drawn = marker(dot.series, x_at(dot.x), y_at(dot.y), size, "mark")
        body.append(linked(dot.href, dot.text or series[dot.series], drawn))
    drawn_series = sorted({dot.series for dot in dots})
    key, end = legend([series[i] for i in drawn_series], _WIDTH, _HEIGHT + 12, kinds=drawn_series)
    trials = plural(sum(d.count for d in dots), "trial")
    description = f"{trials} of {', '.join(series[i] for i in drawn_series)}."
    return drawing(_WIDTH, end, title, description, [*body, *key])


def binned(dots: Sequence[Dot], limit: int) -> list[Dot]:
    """Return at most about `limit` dots: those of a series that are close together become one, at their middle."""
    if len(dots) <= limit:
        return list(dots)
    xs = [math.log10(d.x) if d.x > 0 else 0.0 for d in dots]
    ys = [d.y for d in dots]
    side = max(4, int(math.sqrt(limit / max(1, len({d.series for d in dots})))))
    x_low, x_step = min(xs), (max(xs) - min(xs)) / side or 1.0
    y_low, y_step = min(ys), (max(ys) - min(ys)) / side or 1.0
    groups: dict[tuple[int, int, int], list[Dot]] = {}
    for dot, x in zip(dots, xs, strict=True):
        groups.setdefault((dot.series, int((x - x_low) / x_step), int((dot.y - y_low) / y_step)), []).append(dot)
    merged = []
    for (series, _, _), found in groups.items():
        count = sum(d.count for d in found)
        x = sum(d.x * d.count for d in found) / count
        y = sum(d.y * d.count for d in found) / count
        text = found[0].text if len(found) == 1 else f"{count} trials near {compact(x)}, {compact(y)}"
        merged.append(Dot(series, x, y, count, text, found[0].href if len(found) == 1 else None))
    return merged


def _linear(values: Sequence[float], start: float, end: float) -> tuple[Callable[[float], float], list[float]]:
    ticks = nice_ticks(min(values, default=0.0), max(values, default=1.0))
    low, high = ticks[0], ticks[-1]
    return (lambda value: start + (end - start) * (value - low) / (high - low)), ticks


def _logarithmic(values: Sequence[float], start: float, end: float) -> tuple[Callable[[float], float], list[float]]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    ticks = [10.0**power for power in range(low, high + 1)]
    return (lambda value: start + (end - start) * (math.log10(value) - low) / (high - low)), ticks


def _frame(
    x_ticks: list[float],
    y_ticks: list[float],
    x_at: Callable[[float], float],
    y_at: Callable[[float], float],
    x_text: Callable[[float], str],
    y_text: Callable[[float], str],
) -> list[str]:
    body = []
    for tick in y_ticks:
        body.append(line(_LEFT, y_at(tick), _WIDTH - _RIGHT, y_at(tick), "grid"))
        body.append(label(_LEFT - 5, y_at(tick) + 4, y_text(tick), "dim e"))
    for tick in x_ticks:
        body.append(line(x_at(tick), _HEIGHT - _BOTTOM, x_at(tick), _HEIGHT - _BOTTOM + 4, "axis"))
        body.append(label(x_at(tick), _HEIGHT - _BOTTOM + 16, x_text(tick), "dim m"))
    body.append(line(_LEFT, _HEIGHT - _BOTTOM, _WIDTH - _RIGHT, _HEIGHT - _BOTTOM, "axis"))
    return body


@dataclass(frozen=True)
class TrendPoint:
    """One profile in one batch; `rate` is None where nothing was measured."""

    batch: int
    rate: float | None
    low: float | None = None
    high: float | None = None
    href: str | None = None


@dataclass(frozen=True)
class TrendSeries:
    """One profile over the batches it was part of."""

    label: str
    points: tuple[TrendPoint, ...]


def trend(batches: Sequence[str], series: Sequence[TrendSeries], axis: str = "batch") -> str:
    """The lines. `batches` are the labels, `axis` what they are; a point names its batch by position.

    A gap is a batch without a rate.
    """
    span = max(1, len(batches) - 1)
    shift = min(5.0, 24.0 / max(1, len(series)))

    def x_at(batch: int, index: int) -> float:
        inner = _WIDTH - _LEFT - _RIGHT - 40
        return _LEFT + 20 + inner * batch / span + (index - (len(series) - 1) / 2) * shift

    y_at, y_ticks = _linear([0.0, 1.0], _HEIGHT - _BOTTOM, _TOP)
    body = _frame([], y_ticks, y_at, y_at, compact, lambda rate: f"{100 * rate:g} %")
    body += [label(2, 12, "pass rate, with its interval", "dim"), label(_WIDTH / 2, _HEIGHT - 4, axis, "dim m")]
    every = 1 + (len(batches) - 1) // 10
    for index, name in enumerate(batches):
        if index % every == 0 or index == len(batches) - 1:
            body.append(label(x_at(index, 0), _HEIGHT - 22, short(name, 14), "dim m"))
    for index, one in enumerate(series):
        body += _curve(one, index, x_at, y_at)
        for point in one.points:
            if point.rate is not None:
                drawn = _with_interval(index, point.rate, point.low, point.high, x_at(point.batch, index), y_at, 4.5)
                body.append(linked(point.href, f"{one.label}, {batches[point.batch]}: {percent(point.rate)}", drawn))
    key, end = legend([one.label for one in series], _WIDTH, _HEIGHT + 12)
    return drawing(_WIDTH, end, f"Pass rate by {axis}", _describe(batches, series), [*body, *key])


def _curve(
    one: TrendSeries, index: int, x_at: Callable[[int, int], float], y_at: Callable[[float], float]
) -> list[str]:
    """The line through neighbouring batches; it breaks where one has no rate."""
    drawn: list[str] = []
    run: list[str] = []
    last = -2
    for point in one.points:
        if point.rate is None:
            continue
        if point.batch != last + 1:
            drawn, run = [*drawn, *_path(run, index)], []
        run.append(f"{num(x_at(point.batch, index))} {num(y_at(point.rate))}")
        last = point.batch
    return [*drawn, *_path(run, index)]


def _path(run: list[str], index: int) -> list[str]:
    return [f'<path class="curve s{index % SERIES}" d="M{"L".join(run)}"/>'] if len(run) > 1 else []


def _describe(batches: Sequence[str], series: Sequence[TrendSeries]) -> str:
    lines = []
    for one in series:
        shown = [f"{batches[p.batch]} {percent(p.rate)}" for p in one.points if p.rate is not None]
        lines.append(f"{one.label}: {', '.join(shown) or 'never measured'}.")
    return " ".join(lines)
