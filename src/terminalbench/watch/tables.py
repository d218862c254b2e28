"""The tables of the live view: profiles, running trials, the last finished ones. Pure."""

from dataclasses import dataclass, field

from rich.text import Text

from terminalbench.live.model import LiveProfile, LiveTrial, TrialKey
from terminalbench.live.state import LiveState
from terminalbench.text.numbers import NOTHING, UNKNOWN, duration
from terminalbench.text.outcomes import colour, ending
from terminalbench.watch import figures
from terminalbench.watch.controls import Controls
from terminalbench.watch.layout import Cell, Column, Row, clean, cut, fitting, table
from terminalbench.watch.logs import LogTail

NARROW = 100


@dataclass(frozen=True)
class Frame:
    """Everything one picture shows. `signs` are the times running trials last wrote to their logs."""

    state: LiveState
    place: str
    now: float
    controls: Controls = field(default_factory=Controls)
    note: str | None = None
    plan_problem: str | None = None
    signs: dict[TrialKey, float] = field(default_factory=dict)
    tail: LogTail | None = None
    stopping: bool = False
    over: bool = False


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
    Column("errors by class", 9),
)
_BY_CLASS = len(_PROFILE_COLUMNS) - 1


def profile_lines(profiles: list[LiveProfile], width: int) -> list[Text]:
    """The table of profiles; several get a line of totals."""
    return table(_PROFILE_COLUMNS, _profile_rows(profiles), width, narrow=width < NARROW)


def by_class_fits(profiles: list[LiveProfile], width: int) -> bool:
    """Whether the errors by class are a column of the table."""
    return _BY_CLASS in fitting(_PROFILE_COLUMNS, _profile_rows(profiles), width, narrow=width < NARROW)


def _profile_rows(profiles: list[LiveProfile]) -> list[Row]:
    rows = [_profile_row(profile) for profile in profiles]
    if len(profiles) > 1:
        rows.append(_profile_row(LiveProfile.total(profiles), total=True))
    return rows


def _profile_row(profile: LiveProfile, *, total: bool = False) -> Row:
    planned = "?" if profile.planned is None else str(profile.planned)
    passed, failed = profile.outcomes["passed"], profile.outcomes["failed"]
    return Row(
        [
            Cell(clean(profile.key) or "(no profile)"),
            Cell(f"{profile.done}/{planned}"),
            Cell(str(passed), "green" if passed else "dim"),
            Cell(str(failed), "red" if failed else "dim"),
            Cell(str(profile.broken), "yellow" if profile.broken else "dim"),
            Cell("" if total else figures.rate(profile)),
            Cell("" if total else figures.interval(profile)),
            Cell(figures.cost(profile)),
            Cell(figures.tokens(profile)),
            Cell("" if total else _time(profile.mean_sec)),
            Cell("" if total else _time(profile.p90_sec)),
            Cell(str(profile.retries), "" if profile.retries else "dim"),
            Cell(clean(figures.classes(profile)), "yellow"),
        ],
        "bold" if total else "",
    )


def _time(seconds: float | None) -> str:
    return NOTHING if seconds is None else duration(seconds)


def error_lines(state: LiveState, width: int) -> list[Text]:
    """Errors by class, a line a profile that has any."""
    found = [profile for profile in state.profiles.values() if profile.broken]
    texts = [f"  errors of {clean(profile.key)}: {clean(figures.classes(profile))}" for profile in found]
    return [Text(cut(text, width), "yellow") for text in texts]


_RUNNING_COLUMNS = (
    Column(""),
    Column("task", flexible=True, least=20),
    Column("attempt", 4),
    Column("profile", 3, flexible=True, least=8),
    Column("phase", 1),
    Column("age", right=True),
    Column("last sign", 2, right=True),
)
_FINISHED_COLUMNS = (
    Column(""),
    Column("outcome"),
    Column("task", flexible=True, least=20),
    Column("attempt", 5),
    Column("profile", 2, flexible=True, least=8),
    Column("time", 1, right=True),
    Column("cost", 3, right=True),
    Column("reason", 4, flexible=True, least=16),
)


def running_lines(frame: Frame, trials: list[LiveTrial], width: int, limit: int) -> list[Text]:
    """The running trials, the oldest first."""
    rows = []
    for trial in _window(trials, frame.controls.chosen, limit - 1):
        age = duration(frame.now - trial.started if trial.started is not None else None)
        signs = [time for time in (trial.last, frame.signs.get(trial.key)) if time is not None]
        sign = f"{duration(frame.now - max(signs))} ago" if signs else UNKNOWN
        cells = [*_who(frame, trial), Cell(clean(trial.phase)), Cell(age), Cell(sign)]
        rows.append(Row(cells, _row_style(frame, trial)))
    hidden = f", {len(rows)} shown" if len(rows) < len(trials) else ""
    return _titled(f"Running ({len(trials)}){hidden}", _RUNNING_COLUMNS, rows, width)


def finished_lines(frame: Frame, trials: list[LiveTrial], width: int, limit: int) -> list[Text]:
    """The trials that ended last, the newest first."""
    rows = []
    for trial in _window(trials, frame.controls.chosen, limit - 1):
        outcome = trial.outcome or ""
        mark, *who = _who(frame, trial)
        why = ": ".join(part for part in (trial.error_class, trial.error) if part) if outcome != "passed" else ""
        money = figures.price(trial.cost_usd, frame.state.profiles.get(trial.profile))
        word = Cell(ending(outcome), colour(outcome))
        again = f"retried {trial.retries}x{'; ' if why else ''}" if trial.retries else ""
        cells = [mark, word, *who, Cell(duration(trial.duration)), Cell(money), Cell(clean(again + why))]
        rows.append(Row(cells, _row_style(frame, trial)))
    return _titled("Last finished", _FINISHED_COLUMNS, rows, width)


def _titled(title: str, columns: tuple[Column, ...], rows: list[Row], width: int) -> list[Text]:
    return [Text(cut(title, width), "bold"), *table(columns, rows, width, head=False)]


def _who(frame: Frame, trial: LiveTrial) -> list[Cell]:
    mark = ">" if trial.key == frame.controls.chosen else " "
    attempt = Cell(f"#{frame.state.attempt(trial)}")
    return [Cell(mark), Cell(clean(trial.task or trial.name)), attempt, Cell(clean(trial.profile))]


def _row_style(frame: Frame, trial: LiveTrial) -> str:
    return "reverse" if trial.key == frame.controls.chosen else ""


def _window(trials: list[LiveTrial], chosen: TrialKey | None, size: int) -> list[LiveTrial]:
    """The part of a list that fits, with the chosen trial in it."""
    place = next((i for i, trial in enumerate(trials) if trial.key == chosen), 0)
    start = min(max(0, place - size // 2), max(0, len(trials) - size))
    return trials[start : start + max(0, size)]
