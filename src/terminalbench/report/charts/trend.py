"""Pass rates from batch to batch, a line a profile."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from terminalbench.report.charts.svg import SERIES, drawing, label, legend, line, linked, marker, num
from terminalbench.text.foreign import short
from terminalbench.text.numbers import percent

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 400.0, 248.0, 46.0, 16.0, 26.0, 38.0


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

    def y_at(rate: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * rate

    body = [label(2, 12, "pass rate, with its interval", "dim"), label(_WIDTH / 2, _HEIGHT - 4, axis, "dim m")]
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        body.append(line(_LEFT, y_at(tick), _WIDTH - _RIGHT, y_at(tick), "grid"))
        body.append(label(_LEFT - 5, y_at(tick) + 4, f"{100 * tick:g} %", "dim e"))
    every = 1 + (len(batches) - 1) // 10
    for index, name in enumerate(batches):
        if index % every == 0 or index == len(batches) - 1:
            body.append(label(x_at(index, 0), _HEIGHT - 20, short(name, 14), "dim m"))
    for index, one in enumerate(series):
        body += _curve(one, index, x_at, y_at)
        for point in one.points:
            if point.rate is None:
                continue
            x = x_at(point.batch, index)
            drawn = ""
            if point.low is not None and point.high is not None:
                drawn = line(x, y_at(point.low), x, y_at(point.high), "thin")
            text = f"{one.label}, {batches[point.batch]}: {percent(point.rate)}"
            body.append(linked(point.href, text, drawn + marker(index, x, y_at(point.rate), 4.5, "mark")))
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
