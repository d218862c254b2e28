"""The tables of the live view: profiles, running trials, the last finished ones; and text that fits: cleaned, cut to
cells, in columns that give way by their importance. Pure.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from terminalbench.analytics.long_trajectory import SpentSoFar
from terminalbench.index.totals import wilson
from terminalbench.live.feed import Feed
from terminalbench.live.model import LiveProfile, LiveTrial, TrialKey
from terminalbench.live.state import LiveState
from terminalbench.text import numbers
from terminalbench.text.foreign import ended, printable
from terminalbench.text.names import BADGE
from terminalbench.text.numbers import NOTHING, UNKNOWN, duration
from terminalbench.text.outcomes import MARKS, colour, ending, word
from terminalbench.watch.logs import LogTail
from terminalbench.watch.terminal import Controls

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


NARROW = 100
REASONS = 72
"""From this width on there is room for a reason of some words."""


@dataclass
class Frame:
    """Everything one picture shows.

    `signs` are the times running trials last wrote to their logs, `spent` what those tell of their steps. `checks` say
    of trials that failed which check it was.
    """

    feed: Feed
    now: float = 0.0
    controls: Controls = field(default_factory=Controls)
    signs: dict[TrialKey, float] = field(default_factory=dict)
    checks: dict[TrialKey, str] = field(default_factory=dict)
    spent: dict[TrialKey, SpentSoFar] = field(default_factory=dict)
    tail: LogTail | None = None
    stopping: bool = False

    @property
    def state(self) -> LiveState:
        """The state of the batch."""
        return self.feed.state


def price(cost_usd: float | None, profile: LiveProfile | None) -> str:
    """Return what a trial cost; one of an agent that calls no model costs nothing, which is not unknown."""
    return "no model" if cost_usd is None and profile is not None and profile.free else numbers.dollars(cost_usd)


def cost(profile: LiveProfile) -> str:
    """Return what a profile has cost so far."""
    said = numbers.cost(profile.spent_usd, profile.cost_unknown)
    return said if profile.cost_known or profile.cost_unknown else _none_yet(profile)


def _tokens(profile: LiveProfile) -> str:
    said = numbers.tokens(profile.tokens if profile.tokens_known else None, profile.tokens_unknown)
    return said if profile.tokens_known or profile.tokens_unknown else _none_yet(profile)


def _none_yet(profile: LiveProfile) -> str:
    return "no model" if profile.free else NOTHING


def _classes(profile: LiveProfile) -> str:
    """Return why trials have no verdict, the most frequent first."""
    found = sorted(((n, name) for name, n in profile.errors.items() if n > 0), key=lambda entry: (-entry[0], entry[1]))
    return clean(", ".join(f"{word(name) if name in MARKS else name} {n}" for n, name in found)) or NOTHING


def counted(number: int, style: str) -> Text:
    """A number in a colour; 0 is dim."""
    return Text(str(number), style if number else "dim")


def took(seconds: float | None) -> str:
    """A time, or that there is none yet."""
    return NOTHING if seconds is None else duration(seconds)


def _share(profile: LiveProfile) -> str:
    return numbers.percent(profile.outcomes["passed"] / profile.measured if profile.measured else None)


def _interval(profile: LiveProfile) -> str:
    measured = profile.measured
    return numbers.percents(*wilson(profile.outcomes["passed"] / measured, measured)) if measured else NOTHING


_BY_CLASS = "errors by class"
_PROFILE_COLUMNS = (
    Column("profile", lambda one: one.label or "(no profile)", flexible=True, least=10),
    Column("done", lambda one: one.progress, right=True),
    Column("passed", lambda one: counted(one.outcomes["passed"], "green"), 1, "pass", right=True),
    Column("failed", lambda one: counted(one.outcomes["failed"], "red"), 1, "fail", right=True),
    Column("errors", lambda one: counted(one.broken, "yellow"), 2, "err", right=True),
    Column("of trials", _share, 2, "share", right=True, added=False),
    Column("95 % interval", _interval, 4, "95 %", right=True, added=False),
    Column("cost", cost, 3, right=True),
    Column("tokens", _tokens, 8, right=True),
    Column("mean", lambda one: took(one.mean_sec), 5, right=True, added=False),
    Column("p90", lambda one: took(one.p90_sec), 7, right=True, added=False),
    Column("retries", lambda one: counted(one.retries, ""), 6, "retry", right=True),
    Column(_BY_CLASS, lambda one: Text(_classes(one), "yellow"), 9),
)


def profile_lines(profiles: list[LiveProfile], width: int) -> list[Text]:
    """The table of profiles; several get a line of totals."""
    total = LiveProfile.total(profiles) if len(profiles) > 1 else None
    return table(_PROFILE_COLUMNS, profiles, width, narrow=width < NARROW, total=total)


def error_lines(profiles: list[LiveProfile], head: Text, width: int) -> list[Text]:
    """Errors by class, a line a profile that has any, unless the `head` of the table of profiles names them."""
    found = [] if _BY_CLASS in head.plain else [profile for profile in profiles if profile.broken]
    texts = [f"  errors of {clean(profile.key)}: {_classes(profile)}" for profile in found]
    return [Text(sentence(text, width), "yellow") for text in texts]


def running_lines(frame: Frame, trials: list[LiveTrial], width: int, limit: int) -> list[Text]:
    """The running trials, the oldest first."""

    def sign(trial: LiveTrial) -> str:
        signs = [time for time in (trial.last, frame.signs.get(trial.key)) if time is not None]
        return f"{duration(frame.now - max(signs))} ago" if signs else UNKNOWN

    def steps(trial: LiveTrial) -> str:
        spent = frame.spent.get(trial.key)
        return numbers.plural(spent.steps, "step") if spent is not None else ""

    def tokens(trial: LiveTrial) -> str:
        spent = frame.spent.get(trial.key)
        return f"{numbers.tokens(spent.tokens)} tokens" if spent is not None and spent.tokens is not None else ""

    def money(trial: LiveTrial) -> str:
        spent, profile = frame.spent.get(trial.key), frame.state.profiles.get(trial.profile)
        if spent is None or spent.cost_usd is None:
            return ""
        return spent.cost(no_model=profile is not None and profile.free)

    columns = (
        _mark(frame),
        Column("task", lambda one: one.task or one.name, flexible=True, least=20),
        Column("attempt", lambda one: f"#{frame.state.attempt(one)}", 4),
        Column("profile", lambda one: one.profile, 3, flexible=True),
        Column("phase", lambda one: one.doing, 1),
        Column("age", lambda one: duration(frame.now - one.started if one.started is not None else None), right=True),
        Column("steps", steps, 4, right=True),
        Column("tokens", tokens, 6, right=True),
        Column("cost", money, 5, right=True),
        Column("last sign", sign, 2, right=True),
    )
    shown = _window(trials, frame.controls.chosen, limit - 1)
    hidden = f", {len(shown)} shown" if len(shown) < len(trials) else ""
    head = Text(cut(f"Running ({len(trials)}){hidden}", width), "bold")
    return [head, *table(columns, shown, width, style=_chosen_style(frame))]


def finished_lines(frame: Frame, trials: list[LiveTrial], width: int, limit: int) -> list[Text]:
    """The trials that ended last, the newest first; why one failed is worth more than what it cost."""

    def reason(trial: LiveTrial) -> str:
        passed = trial.outcome == "passed"
        why = "" if passed else ": ".join(part for part in (trial.error_class, trial.error) if part)
        why = why or frame.checks.get(trial.key, "")
        return "; ".join(filter(None, (f"retried {trial.retries}x" if trial.retries else "", why)))

    wide = width >= REASONS
    columns = (
        _mark(frame),
        Column("outcome", lambda one: Text(ending(one.outcome or ""), colour(one.outcome or ""))),
        Column("task", lambda one: one.task or one.name, flexible=True, least=20 if wide else 16),
        Column("attempt", lambda one: f"#{frame.state.attempt(one)}", 5),
        Column("profile", lambda one: one.profile, 2, flexible=True),
        Column("time", lambda one: duration(one.duration), 3, right=True),
        Column("cost", lambda one: price(one.cost_usd, frame.state.profiles.get(one.profile)), 4, right=True),
        Column("reason", reason, 1, flexible=True, least=32 if wide else 16),
    )
    shown = _window(trials, frame.controls.chosen, limit - 1)
    return [Text(cut("Last finished", width), "bold"), *table(columns, shown, width, style=_chosen_style(frame))]


def _mark(frame: Frame) -> Column:
    return Column("", lambda one: ">" if one.key == frame.controls.chosen else " ")


def _chosen_style(frame: Frame) -> Callable[[LiveTrial], str]:
    return lambda one: "reverse" if one.key == frame.controls.chosen else ""


def _window(trials: list[LiveTrial], chosen: TrialKey | None, size: int) -> list[LiveTrial]:
    """The part of a list that fits, with the chosen trial in it."""
    place = next((i for i, trial in enumerate(trials) if trial.key == chosen), 0)
    start = min(max(0, place - size // 2), max(0, len(trials) - size))
    return trials[start : start + max(0, size)]
