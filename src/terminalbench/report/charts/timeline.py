"""A night from its begin to its end: who worked on what, when something broke, and what was spent by then."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil

from terminalbench.report.charts.svg import box, compact, drawing, label, line, linked, marker, nice_ticks, num, tip
from terminalbench.text.foreign import short
from terminalbench.text.numbers import dollars, plural

_WIDTH, _LEFT, _RIGHT, _SPEND = 400.0, 62.0, 14.0, 74.0
_ROOMY = 8
"""Lanes up to which each has the height of its number."""
_MOST = 300
_DIGIT, _NEAR = 7.0, 6.0
_STEPS = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200,
    *(86_400 * days for days in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
)  # fmt: skip
"""Seconds between two marks of the axis."""


@dataclass(frozen=True)
class TimelineBar:
    """Somebody at work on something; without an `end` still at it. Moments are seconds since 1970."""

    lane: int
    begin: float
    end: float | None
    name: str
    said: str
    lost: bool = False
    href: str | None = None


@dataclass(frozen=True)
class TimelineMark:
    """Something that happened. What went `wrong` is a triangle, other things are diamonds."""

    at: float
    said: str
    wrong: bool = True


@dataclass(frozen=True)
class SpentBy:
    """All that was spent up to a moment, as far as it is known."""

    at: float
    usd: float


def timeline(bars: Sequence[TimelineBar], marks: Sequence[TimelineMark], spend: Sequence[SpentBy]) -> str | None:
    """Return the picture; None where nothing has a length in time. Of many bars the last ones are drawn."""
    bars = bars[-_MOST:]
    moments = [*(bar.begin for bar in bars), *(bar.end for bar in bars if bar.end is not None)]
    if not moments:
        return None
    begin = min(moments)
    until = max([*moments, *(one.at for one in (*marks, *spend))])
    if until <= begin:
        return None
    axis = _Axis(begin, until)
    lanes = sorted({bar.lane for bar in bars})
    height = 20.0 if len(lanes) <= _ROOMY else 9.0
    top = 20.0
    bottom = top + height * len(lanes)
    body = [label(2, 12, "worker", "dim")]
    for place, lane in enumerate(lanes):
        y = top + height * place
        if height >= 20 or place % 3 == 0:
            body.append(label(_LEFT - 6, y + height / 2 + 4, lane, "dim e"))
        body += [_bar(bar, axis, y, height) for bar in bars if bar.lane == lane]
    body.append(label(2, bottom + 20, "incidents", "dim"))
    shown = [one for one in marks if one.at >= begin]
    body += _marks(shown, axis, bottom + 16) or [label(_LEFT, bottom + 20, "none", "dim")]
    drawn, base = _spend(spend, axis, bottom + 40)
    grid = [line(axis.x(at), top - 4, axis.x(at), base, "grid") for at in axis.ticks]
    numbers = [label(axis.x(at), base + 15, axis.text(at), "dim m") for at in axis.ticks]
    end = [label((_LEFT + _WIDTH - _RIGHT) / 2, base + 32, "time, UTC", "dim m"), *_key(base + 52)]
    said = _describe(bars, marks, spend, axis)
    return drawing(_WIDTH, base + 60, "Workers, incidents and spend", said, [*grid, *body, *drawn, *numbers, *end])


class _Axis:
    """The time of the night across the picture."""

    def __init__(self, begin: float, until: float) -> None:
        self._begin, self._until = begin, until
        self._step = next((step for step in _STEPS if (until - begin) / step <= 5), _STEPS[-1])
        first = ceil(begin / self._step)
        self.ticks = [self._step * n for n in range(first, int(until // self._step) + 1)]

    def x(self, at: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (min(max(at, self._begin), self._until) - self._begin) / (
            self._until - self._begin
        )

    def end(self, bar: TimelineBar) -> float:
        return self.x(bar.end if bar.end is not None else self._until)

    def text(self, at: float) -> str:
        form = "%H:%M:%S" if self._step < 60 else "%H:%M" if self._step < 86_400 else "%m-%d"
        return datetime.fromtimestamp(at, UTC).strftime(form)


def _bar(bar: TimelineBar, axis: _Axis, y: float, height: float) -> str:
    x, end = axis.x(bar.begin), axis.end(bar)
    drawn = box(x, y + 1, max(end - x, 1.0), height - 2, "part s4" if bar.lost else "part s0")
    if end - x > _DIGIT * len(bar.name) + 4 and height >= 20:
        drawn += label((x + end) / 2, y + height / 2 + 4, bar.name, "on m")
    if bar.lost:
        drawn += marker(5, end, y + height / 2, 3.5, "stroke")
    return linked(bar.href, bar.said, drawn)


def _marks(marks: Sequence[TimelineMark], axis: _Axis, y: float) -> list[str]:
    """A mark a moment; those that would lie on one another are one, which says how many they are."""
    groups: list[list[TimelineMark]] = []
    for one in sorted(marks, key=lambda one: one.at):
        if groups and axis.x(one.at) - axis.x(groups[-1][0].at) < _NEAR:
            groups[-1].append(one)
        else:
            groups.append([one])
    found = []
    for group in groups:
        wrong = any(one.wrong for one in group)
        shape = marker(2 if wrong else 3, axis.x(group[0].at), y, 4.5, "bad" if wrong else "solid")
        said = group[0].said if len(group) == 1 else f"{len(group)} at once, the first: {group[0].said}"
        found.append(f"<g>{tip(short(said, 200))}{shape}</g>")
    return found


def _spend(spend: Sequence[SpentBy], axis: _Axis, top: float) -> tuple[list[str], float]:
    """Return what was spent, as steps; and where the axis of time lies."""
    most = max((one.usd for one in spend), default=0.0)
    if most <= 0:
        return [label(2, top + 8, "spend", "dim"), label(_LEFT, top + 8, "no cost is known", "dim")], top + 20
    ticks = nice_ticks(0.0, most, 3)
    base = top + _SPEND

    def y_at(usd: float) -> float:
        return base - (_SPEND - 12) * usd / max(ticks[-1], most)

    drawn = [label(2, top + 2, "spend, US$", "dim")]
    for tick in ticks:
        drawn.append(line(_LEFT, y_at(tick), _WIDTH - _RIGHT, y_at(tick), "grid"))
        drawn.append(label(_LEFT - 6, y_at(tick) + 4, compact(tick), "dim e"))
    steps = "".join(f"H{num(axis.x(one.at))}V{num(y_at(one.usd))}" for one in spend)
    path = f'<path class="curve s3" d="M{num(_LEFT)} {num(base)}{steps}H{num(_WIDTH - _RIGHT)}"/>'
    return [*drawn, f"<g>{tip(f'{dollars(most)} by the end')}{path}</g>"], base


def _key(y: float) -> list[str]:
    """Return what the shapes mean."""
    told = (
        (4.0, box(4, y - 9, 11, 11, "part s0"), "iteration"),
        (100.0, box(100, y - 9, 11, 11, "part s4") + marker(5, 105.5, y - 3.5, 3.5, "stroke"), "worker lost"),
        (212.0, marker(2, 217, y - 4, 4.5, "bad"), "incident"),
        (306.0, marker(3, 311, y - 4, 4.5, "solid"), "resumed"),
    )
    return [part + label(x + 17, y, text) for x, part, text in told]


def _describe(bars: Sequence[TimelineBar], marks: Sequence[TimelineMark], spend: Iterable[SpentBy], axis: _Axis) -> str:
    lost = sum(bar.lost for bar in bars)
    wrong = [f"{axis.text(one.at)} {short(one.said, 80)}" for one in marks if one.wrong]
    more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
    spent = max((one.usd for one in spend), default=None)
    return (
        f"{plural(len({bar.lane for bar in bars}), 'worker')}, {plural(len(bars), 'stretch', 'stretches')} of work, "
        f"{lost} of them lost. Went wrong: {'; '.join(wrong[:5]) or 'nothing'}{more}. Spent: {dollars(spent)}."
    )
