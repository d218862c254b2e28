"""The few pieces of SVG that every chart is made of: escaped text, short numbers, ticks, markers."""

import math
from collections.abc import Iterable, Sequence
from html import escape

from terminalbench.text.foreign import short, visible

SERIES = 8


def esc(value: object) -> str:
    """Text as it may stand in an element or an attribute."""
    return escape(visible(str(value)), quote=True)


def num(value: float) -> str:
    """A coordinate with at most one decimal."""
    text = f"{value:.1f}"
    return text.removesuffix(".0") if text != "-0.0" else "0"


def varies(values: Iterable[float | None], *known: float) -> bool:
    """Return whether a picture of the values would show anything: two that differ, or one that differs from the
    `known`."""
    return len({*values, *known} - {None}) > 1


def drawing(
    width: float, height: float, title: str, description: str, body: Iterable[str], *, whole: bool = False
) -> str:
    """The whole picture. One with links inside is a group to assistive technology, so that they stay reachable.

    It gets smaller where there is less room; `whole` is not made smaller, and the page around it scrolls instead. The
    size is an attribute: a page may forbid inline style.
    """
    kind, size = ("chart whole", width) if whole else ("chart", width * 1.25)
    drawn = "".join(body)
    role = f'"group" aria-label="{esc(title)}"' if "<a href=" in drawn else '"img"'
    return (
        f'<svg class="{kind}" role={role} viewBox="0 0 {num(width)} {num(height)}" width="{num(size)}">'
        f"<title>{esc(title)}</title><desc>{esc(description)}</desc>"
        f"{drawn}</svg>"
    )


def label(x: float, y: float, text: object, classes: str = "") -> str:
    """A line of text."""
    kind = f' class="{classes}"' if classes else ""
    return f'<text x="{num(x)}" y="{num(y)}"{kind}>{esc(text)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, classes: str) -> str:
    """A straight line."""
    return f'<path class="{classes}" d="M{num(x1)} {num(y1)}L{num(x2)} {num(y2)}"/>'


def box(x: float, y: float, width: float, height: float, classes: str, more: str = "") -> str:
    """A rectangle; `more` is what stands inside the element, already SVG."""
    place = f'x="{num(x)}" y="{num(y)}" width="{num(max(width, 0))}" height="{num(height)}"'
    return f'<rect class="{classes}" {place}{f">{more}</rect>" if more else "/>"}'


def tip(text: str) -> str:
    """Return what a pointer shows when it rests."""
    return f"<title>{esc(text)}</title>"


def linked(href: str | None, text: str, body: str) -> str:
    """`body` as a link with an accessible name, or with a tip alone where there is nothing to link to."""
    if href is None:
        return f"<g>{tip(text)}{body}</g>"
    return f'<a href="{esc(href)}">{tip(text)}{body}</a>'


def marker(series: int, x: float, y: float, size: float, classes: str) -> str:
    """The shape of a series: as telling as its colour. Beyond as many as there are, shape and colour tell together."""
    s, kind = size, (series + series // SERIES) % SERIES
    full = f"{classes} s{series % SERIES}"
    if kind == 0:
        return f'<circle class="{full}" cx="{num(x)}" cy="{num(y)}" r="{num(s)}"/>'
    shapes = {
        1: f"M{num(x - s)} {num(y - s)}h{num(2 * s)}v{num(2 * s)}h{num(-2 * s)}z",
        2: f"M{num(x)} {num(y - 1.2 * s)}l{num(1.2 * s)} {num(2.1 * s)}h{num(-2.4 * s)}z",
        3: f"M{num(x)} {num(y - 1.3 * s)}l{num(1.3 * s)} {num(1.3 * s)}l{num(-1.3 * s)} {num(1.3 * s)}"
        f"l{num(-1.3 * s)} {num(-1.3 * s)}z",
        4: f"M{num(x)} {num(y + 1.2 * s)}l{num(1.2 * s)} {num(-2.1 * s)}h{num(-2.4 * s)}z",
        5: f"M{num(x - s)} {num(y - s)}l{num(2 * s)} {num(2 * s)}m0 {num(-2 * s)}l{num(-2 * s)} {num(2 * s)}",
        6: f"M{num(x)} {num(y - 1.3 * s)}v{num(2.6 * s)}m{num(-1.3 * s)} {num(-1.3 * s)}h{num(2.6 * s)}",
        7: f"M{num(x - 1.3 * s)} {num(y - 0.5 * s)}h{num(2.6 * s)}v{num(s)}h{num(-2.6 * s)}z",
    }
    return f'<path class="{full}" d="{shapes[kind]}"/>'


def legend(
    names: Sequence[str], width: float, y: float, *, boxes: bool = False, kinds: Sequence[int] | None = None
) -> tuple[list[str], float]:
    """Return which shape and colour is which; wraps at the width. Also says where the next thing may start.

    `kinds` are the series the names stand for, where they are not simply counted.
    """
    parts: list[str] = []
    x = 4.0
    for index, name in zip(kinds or range(len(names)), names, strict=True):
        text = short(name, 34)
        needs = 24 + 6.6 * len(text)
        if x > 4 and x + needs > width:
            x, y = 4.0, y + 17
        kind = f"part s{index % SERIES}"
        parts.append(box(x, y - 9, 11, 11, kind) if boxes else marker(index, x + 5, y - 4, 4, "mark"))
        parts.append(label(x + 15, y, text))
        x += needs
    return parts, y + 17


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers that cover the range."""
    if high - low <= 1e-9 * max(1e-3, abs(low), abs(high)):
        high = low + (abs(low) if abs(low) > 1e-9 else 1.0)
    raw = (high - low) / max(1, count - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw * 0.999)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def compact(value: float) -> str:
    """A number for an axis: 1.2k, 3M, 0.05."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
