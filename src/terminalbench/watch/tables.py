"""The tables of the live view: profiles, running trials, the last finished ones. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, field

from rich.text import Text

from terminalbench.analytics.long_trajectory import SpentSoFar
from terminalbench.index.totals import wilson
from terminalbench.live.feed import Feed
from terminalbench.live.model import LiveProfile, LiveTrial, TrialKey
from terminalbench.live.state import LiveState
from terminalbench.text import numbers
from terminalbench.text.numbers import NOTHING, UNKNOWN, duration
from terminalbench.text.outcomes import MARKS, colour, ending, word
from terminalbench.watch.layout import Column, clean, cut, sentence, table
from terminalbench.watch.logs import LogTail
from terminalbench.watch.terminal import Controls

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
