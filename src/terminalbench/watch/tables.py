"""The tables of the live view: profiles, running trials, the last finished ones. Pure."""

from dataclasses import dataclass, field

from rich.text import Text

from terminalbench.analytics.live_steps import SpentSoFar
from terminalbench.index.totals import wilson
from terminalbench.live.feed import Feed
from terminalbench.live.model import LiveProfile, LiveTrial, TrialKey
from terminalbench.live.state import LiveState
from terminalbench.text import numbers
from terminalbench.text.numbers import NOTHING, UNKNOWN, duration
from terminalbench.text.outcomes import MARKS, colour, ending, word
from terminalbench.watch.controls import Controls
from terminalbench.watch.layout import Column, ScreenRow, clean, cut, sentence, table
from terminalbench.watch.logs import LogTail

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


_BY_CLASS = "errors by class"
_PROFILE_COLUMNS = (
    Column("profile", flexible=True, least=10),
    Column("done", right=True),
    Column("passed", 1, "pass", right=True),
    Column("failed", 1, "fail", right=True),
    Column("errors", 2, "err", right=True),
    Column("of trials", 2, "share", right=True),
    Column("95 % interval", 4, "95 %", right=True),
    Column("cost", 3, right=True),
    Column("tokens", 8, right=True),
    Column("mean", 5, right=True),
    Column("p90", 7, right=True),
    Column("retries", 6, "retry", right=True),
    Column(_BY_CLASS, 9),
)


def profile_lines(profiles: list[LiveProfile], width: int) -> list[Text]:
    """The table of profiles; several get a line of totals."""
    rows = [_profile_row(profile) for profile in profiles]
    if len(profiles) > 1:
        rows.append(_profile_row(LiveProfile.total(profiles), total=True))
    return table(_PROFILE_COLUMNS, rows, width, narrow=width < NARROW)


def _profile_row(profile: LiveProfile, *, total: bool = False) -> ScreenRow:
    passed, failed, measured = profile.outcomes["passed"], profile.outcomes["failed"], profile.measured
    own = [
        numbers.percent(passed / measured if measured else None),
        numbers.percents(*wilson(passed / measured, measured)) if measured else NOTHING,
        *(NOTHING if sec is None else duration(sec) for sec in (profile.mean_sec, profile.p90_sec)),
    ]
    share, interval, mean, p90 = ("" if total else text for text in own)
    return ScreenRow(
        [
            Text(clean(profile.label) or "(no profile)"),
            Text(profile.progress),
            Text(str(passed), "green" if passed else "dim"),
            Text(str(failed), "red" if failed else "dim"),
            Text(str(profile.broken), "yellow" if profile.broken else "dim"),
            Text(share),
            Text(interval),
            Text(cost(profile)),
            Text(_tokens(profile)),
            Text(mean),
            Text(p90),
            Text(str(profile.retries), "" if profile.retries else "dim"),
            Text(_classes(profile), "yellow"),
        ],
        "bold" if total else "",
    )


def error_lines(profiles: list[LiveProfile], head: Text, width: int) -> list[Text]:
    """Errors by class, a line a profile that has any, unless the `head` of the table of profiles names them."""
    found = [] if _BY_CLASS in head.plain else [profile for profile in profiles if profile.broken]
    texts = [f"  errors of {clean(profile.key)}: {_classes(profile)}" for profile in found]
    return [Text(sentence(text, width), "yellow") for text in texts]


_RUNNING_COLUMNS = (
    Column(""),
    Column("task", flexible=True, least=20),
    Column("attempt", 4),
    Column("profile", 3, flexible=True, least=8),
    Column("phase", 1),
    Column("age", right=True),
    Column("steps", 4, right=True),
    Column("tokens", 6, right=True),
    Column("cost", 5, right=True),
    Column("last sign", 2, right=True),
)


def _finished_columns(width: int) -> tuple[Column, ...]:
    """The columns of the trials that ended: why one failed is worth more than what it cost."""
    task, reason = (20, 32) if width >= REASONS else (16, 16)
    return (
        Column(""),
        Column("outcome"),
        Column("task", flexible=True, least=task),
        Column("attempt", 5),
        Column("profile", 2, flexible=True, least=8),
        Column("time", 3, right=True),
        Column("cost", 4, right=True),
        Column("reason", 1, flexible=True, least=reason),
    )


def running_lines(frame: Frame, trials: list[LiveTrial], width: int, limit: int) -> list[Text]:
    """The running trials, the oldest first."""
    rows = []
    for trial in _window(trials, frame.controls.chosen, limit - 1):
        age = duration(frame.now - trial.started if trial.started is not None else None)
        signs = [time for time in (trial.last, frame.signs.get(trial.key)) if time is not None]
        sign = f"{duration(frame.now - max(signs))} ago" if signs else UNKNOWN
        used = _spent(frame.spent.get(trial.key), frame.state.profiles.get(trial.profile))
        rows.append(_row(frame, trial, [], [Text(clean(trial.doing)), Text(age), *used, Text(sign)]))
    hidden = f", {len(rows)} shown" if len(rows) < len(trials) else ""
    return [Text(cut(f"Running ({len(trials)}){hidden}", width), "bold"), *table(_RUNNING_COLUMNS, rows, width)]


def _spent(spent: SpentSoFar | None, profile: LiveProfile | None) -> list[Text]:
    """Steps, tokens and cost so far; nothing while no log tells."""
    if spent is None:
        return [Text("")] * 3
    used = "" if spent.tokens is None else f"{numbers.tokens(spent.tokens)} tokens"
    money = "" if spent.cost_usd is None else spent.cost(no_model=profile is not None and profile.free)
    return [Text(numbers.plural(spent.steps, "step")), Text(used), Text(money)]


def finished_lines(frame: Frame, trials: list[LiveTrial], width: int, limit: int) -> list[Text]:
    """The trials that ended last, the newest first."""
    rows = []
    for trial in _window(trials, frame.controls.chosen, limit - 1):
        outcome = trial.outcome or ""
        why = ": ".join(part for part in (trial.error_class, trial.error) if part) if outcome != "passed" else ""
        why = why or frame.checks.get(trial.key, "")
        again = f"retried {trial.retries}x{'; ' if why else ''}" if trial.retries else ""
        money = price(trial.cost_usd, frame.state.profiles.get(trial.profile))
        more = [Text(duration(trial.duration)), Text(money), Text(clean(again + why))]
        rows.append(_row(frame, trial, [Text(ending(outcome), colour(outcome))], more))
    return [Text(cut("Last finished", width), "bold"), *table(_finished_columns(width), rows, width)]


def _row(frame: Frame, trial: LiveTrial, before: list[Text], after: list[Text]) -> ScreenRow:
    chosen = trial.key == frame.controls.chosen
    who = [Text(clean(trial.task or trial.name)), Text(f"#{frame.state.attempt(trial)}"), Text(clean(trial.profile))]
    return ScreenRow([Text(">" if chosen else " "), *before, *who, *after], "reverse" if chosen else "")


def _window(trials: list[LiveTrial], chosen: TrialKey | None, size: int) -> list[LiveTrial]:
    """The part of a list that fits, with the chosen trial in it."""
    place = next((i for i, trial in enumerate(trials) if trial.key == chosen), 0)
    start = min(max(0, place - size // 2), max(0, len(trials) - size))
    return trials[start : start + max(0, size)]
