"""The live view as lines of text, for a width and a height: a pure function of a `Frame`.

Whatever the terminal is, no line is wider and there are no more lines than it has. Colour only repeats what a word or a
mark says.
"""

from dataclasses import dataclass

from rich.text import Text

from terminalbench.live.forecast import eta_sec
from terminalbench.live.line import clock, wait_lines
from terminalbench.live.model import LiveProfile, seconds
from terminalbench.live.state import LiveState
from terminalbench.watch import figures
from terminalbench.watch.controls import Controls, Mode
from terminalbench.watch.layout import Piece, clean, cut, fit, joined
from terminalbench.watch.pages import ask_lines, help_lines, tail_lines
from terminalbench.watch.tables import (
    NARROW,
    Frame,
    by_class_fits,
    error_lines,
    finished_lines,
    profile_lines,
    running_lines,
)

SHORTEST_BAR, LONGEST_BAR, SHORTEST_NAME = 8, 30, 10
_SEVERITIES = {"critical": "bold red", "error": "bold red", "warning": "yellow"}


@dataclass(frozen=True)
class Shares:
    """How many lines each part of the table gets."""

    profiles: int
    errors: int
    notices: int
    running: int
    finished: int
    spaced: bool


def render(frame: Frame, width: int, height: int) -> list[Text]:
    """The lines of a picture."""
    width, height = max(1, width), max(1, height)
    if frame.controls.mode is Mode.HELP:
        return help_lines(frame.controls, width, height)
    if frame.controls.mode is Mode.TAIL and frame.controls.chosen is not None:
        trial = frame.state.trials.get(frame.controls.chosen)
        return tail_lines(trial, frame.tail, frame.controls, frame.now, width, height)
    lines = _table_lines(frame, width, height)
    if frame.controls.mode is Mode.ASK:
        question = ask_lines(width)
        lines[-len(question) :] = question[-height:]
    return lines[:height]


def _table_lines(frame: Frame, width: int, height: int) -> list[Text]:
    state = frame.state
    profiles = profile_lines(list(state.profiles.values()), width)
    errors = [] if by_class_fits(list(state.profiles.values()), width) else error_lines(state, width)
    notices = notice_lines(frame, width)
    running, finished = state.running, list(reversed(state.finished))
    shares = share(height, len(profiles), len(errors), len(notices), len(running), len(finished))
    gap = [Text("")] if shares.spaced else []
    lines = [title_line(frame, width), progress_line(frame, width), *gap]
    lines += _some_profiles(profiles, shares.profiles, width)
    lines += _shortened(errors, shares.errors, "more profiles with errors", width)
    if shares.notices:
        lines += [*gap, *_shortened(notices, shares.notices, "more notices", width)]
    if shares.running:
        lines += [*gap, *running_lines(frame, running, width, shares.running)]
    if shares.finished:
        lines += [*gap, *finished_lines(frame, finished, width, shares.finished)]
    lines = lines[: height - 1]
    lines += [Text("")] * (height - 1 - len(lines))
    return [*lines, footer(frame.controls, width)]


def share(height: int, profiles: int, errors: int, notices: int, running: int, finished: int) -> Shares:
    """Divide the lines of a terminal among the parts of the table."""
    spaced = height >= 20
    left = height - 3 - spaced
    shown = min(profiles, max(2, left * 2 // 5)) if profiles > left - 4 else profiles
    left -= shown
    some_errors = min(errors, 3 if height >= 24 else 1 if left > 4 else 0)
    left -= some_errors
    some_notices = min(notices, 8 if height >= 45 else 5 if height >= 30 else 4 if height >= 24 else 1 + (height >= 14))
    some_notices = some_notices if left >= some_notices + spaced else 0
    left -= some_notices + (spaced and some_notices > 0)
    lines = left - spaced
    wanted = running + 1 if running else 0
    some_running = min(wanted, max(lines * 3 // 5, lines - finished - 1 - spaced))
    some_running = some_running if some_running >= 2 else 0
    left = lines - some_running - (spaced and some_running > 0)
    some_finished = min(finished + 1, left) if finished and left >= 2 else 0
    return Shares(shown, some_errors, some_notices, some_running, some_finished, spaced)


def _shortened(lines: list[Text], limit: int, what: str, width: int) -> list[Text]:
    if len(lines) <= limit:
        return lines
    kept = max(0, limit - 1)
    return [*lines[:kept], fit(Text(f"  and {len(lines) - kept} {what}", "dim"), width)] if limit > 0 else []


def _some_profiles(lines: list[Text], limit: int, width: int) -> list[Text]:
    """The table of profiles in so many lines: its head, some profiles, how many more there are, the total."""
    if len(lines) <= limit or len(lines) < 4:
        return lines[:limit]
    if limit < 3:
        return [lines[0], lines[-1]][:limit]
    kept = limit - 3
    more = fit(Text(f"  and {len(lines) - 2 - kept} more profiles", "dim"), width)
    return [*lines[: 1 + kept], more, lines[-1]]


def title_line(frame: Frame, width: int) -> Text:
    """Which batch, for how long, how much longer."""
    state, name = frame.state, frame.state.plan.name if frame.state.plan is not None else frame.place
    word = "over" if frame.over else "stopping" if frame.stopping else "running" if state.events else "starting"
    until = state.last if frame.over and state.last is not None else frame.now
    elapsed = clock(until - state.began) if state.began is not None else ""
    ending = frame.over or frame.stopping
    left = None if ending else eta_sec(state, frame.now)
    gap = "  ·  " if width >= NARROW else "  "
    pieces = [
        Piece(f"{word} {elapsed}".strip(), 0, "bold"),
        Piece(f"about {clock(left)} left" if left is not None else "" if ending else "time left unknown", 1),
    ]
    line = joined(pieces, width, gap)
    names = [(clean(frame.place), ""), (clean(name), "bold")] if name != frame.place else [(clean(name), "bold")]
    for text, style in names:  # the place is worth more than the title
        room = width - line.cell_len - len(gap)
        if room >= SHORTEST_NAME:
            line = Text.assemble((cut(text, room), style), gap, line, no_wrap=True)
    return line


def progress_line(frame: Frame, width: int) -> Text:
    """How far it is, and what it has cost of what it may."""
    total = frame.state.total
    planned = "?" if total.planned is None else str(total.planned)
    held, never, waiting = len(frame.state.held), frame.state.never, frame.state.to_start
    percent = f"{100 * total.done // total.planned} %" if total.planned else ""
    pieces = [
        Piece(f"{total.done}/{planned} done", 0, "bold"),
        Piece(percent, 4),
        Piece(f"{total.running} running" if total.running else "", 1),
        Piece(f"{waiting} waiting" if waiting else "", 5),
        Piece(f"{held} held" if held else "", 1, "yellow"),
        Piece(f"{never} not run" if never else "", 2, "yellow"),
        Piece(f"{total.outcomes['cancelled']} cancelled" if total.outcomes["cancelled"] else "", 6),
        Piece(_spend(frame, total, narrow=width < NARROW), 2),
        Piece(_deadline(frame), 3, "yellow"),
    ]
    line = joined(pieces, width)
    room = min(LONGEST_BAR, width - line.cell_len - 2)
    if room < SHORTEST_BAR:
        return line
    return Text.assemble((figures.bar(total.done, total.planned, room), "cyan"), "  ", line, no_wrap=True)


def _spend(frame: Frame, total: LiveProfile, *, narrow: bool) -> str:
    gate = frame.gate
    if gate is None or gate.budget_usd is None:
        if not total.cost_known:
            return "cost unknown" if total.cost_unknown else ""
        return figures.cost(total, narrow=narrow)
    guessed = f" ({gate.priced} guessed)" if gate.priced else ""
    return f"${gate.spent_usd:.2f}{guessed} of ${gate.budget_usd:.2f}"


def _deadline(frame: Frame) -> str:
    left = frame.deadline_sec
    if left is None or frame.over:
        return ""
    return f"deadline in {clock(left)}" if left > 0 else "deadline has passed"


def notice_lines(frame: Frame, width: int) -> list[Text]:
    """Why trials wait, what was said, what could not be read: the most important first."""
    state = frame.state
    lines = []
    held: dict[str, int] = {}
    for _, reason in state.held:
        held[reason] = held.get(reason, 0) + 1
    for reason, number in held.items():
        lines.append(("warning", f"! held: {number} do not start: {reason}"))
    for alert in state.alerts.worst_first():
        who = f" [{alert.profile}]" if alert.profile else ""
        since = seconds(alert.since)
        age = f", raised {clock(frame.now - since)} ago" if since is not None else ""
        lines.append((alert.severity, f"! {alert.severity} ({alert.cause}){who}: {alert.message}{age}"))
    if not held and frame.gate is not None and frame.gate.shut is not None and not frame.over:
        lines.append(("warning", f"! nothing new starts: {frame.gate.shut.reason}"))
    if not (frame.over or frame.stopping):
        lines += [("info", f"- {text}") for text in wait_lines(state, frame.now)]
    for notice in state.notices.worst():
        who = f" [{notice.profile}]" if notice.profile else ""
        times = f" ({notice.count} times)" if notice.count > 1 else ""
        age = f", {clock(frame.now - notice.time)} ago" if notice.time is not None else ""
        mark = "!" if notice.severity in _SEVERITIES else "-"
        word = notice.kind if notice.severity == "info" else f"{notice.kind} ({notice.severity})"
        lines.append((notice.severity, f"{mark} {word}{who}: {notice.text}{times}{age}"))
    if frame.plan_problem:
        lines.append(("warning", f"! {frame.plan_problem}"))
    if frame.note:
        lines.append(("info", f"- {frame.note}"))
    lines += [("info", f"- {text}") for text in _left_out(state)]
    if state.bad_lines or state.lost_lines:
        lines.append(("warning", f"! events: {state.bad_lines} lines unreadable, {state.lost_lines} lost"))
    lines.sort(key=lambda line: line[0] not in _SEVERITIES)
    return [Text(cut(clean(text), width), _SEVERITIES.get(kind, "")) for kind, text in lines]


def _left_out(state: LiveState) -> list[str]:
    number = sum(profile.left_out for profile in state.profiles.values())
    if not number or state.plan is None:
        return []
    reasons = list(dict.fromkeys(exclusion.reason for exclusion in state.plan.excluded))
    more = f" (and {len(reasons) - 1} further reasons)" if len(reasons) > 1 else ""
    return [f"{number} planned trials are left out: {reasons[0] if reasons else 'no reason given'}{more}"]


def footer(controls: Controls, width: int) -> Text:
    """The keys."""
    leave = "q leave or stop" if controls.owner else "q leave"
    pieces = [Piece(leave), Piece("? help", 1), Piece("enter log", 2), Piece("j/k or arrows choose", 3)]
    line = joined(pieces, width, "   ")
    line.stylize("dim")
    return line
