"""The live view of a batch: `BatchPage` follows its files, `render` draws a `Frame` for a width and a height, purely.

Whatever the terminal is, no line is wider and there are no more lines than it has. Colour only repeats what a word or a
mark says.
"""

import time
from collections import Counter
from dataclasses import dataclass, field, replace

from rich.text import Text

from terminalbench.live.forecast import eta_sec, wait_lines
from terminalbench.live.model import LiveProfile, TrialKey, seconds
from terminalbench.live.state import LiveState
from terminalbench.records.trial import Outcome
from terminalbench.text.numbers import duration, percent, plural, size
from terminalbench.text.outcomes import word
from terminalbench.watch.logs import TAIL_BYTES, check_of, last_sign, read_tail, spent_of
from terminalbench.watch.tables import (
    NARROW,
    Frame,
    LinePiece,
    clean,
    cost,
    cut,
    error_lines,
    finished_lines,
    fit,
    joined,
    profile_lines,
    running_lines,
    sentence,
)
from terminalbench.watch.terminal import Controls, ScreenMode

_SHORTEST_BAR, _LONGEST_BAR, SHORTEST_NAME = 8, 30, 10
_SEVERITIES = {"critical": "bold red", "error": "bold red", "warning": "yellow"}


def render(frame: Frame, width: int, height: int) -> list[Text]:
    """The lines of a picture."""
    width, height = max(1, width), max(1, height)
    if frame.controls.mode is ScreenMode.TAIL and frame.controls.chosen is not None:
        return tail_lines(frame, width, height)
    lines = [] if frame.controls.mode is ScreenMode.HELP else _table_lines(frame, width, height)
    return with_mode(lines, frame.controls, _WORDS, width, height)


@dataclass(frozen=True)
class ModeWords:
    """The words of a view for its help and for its question: what is shown, and how it goes on when it was stopped."""

    what: str
    resume: str
    help: str


def with_mode(lines: list[Text], controls: Controls, words: ModeWords, width: int, height: int) -> list[Text]:
    """A picture with the question whether to leave or to stop below it; in the mode of help, the help instead."""
    if controls.mode is ScreenMode.HELP:
        leave = f"leave the view, or stop the {words.what}: it asks" if controls.owner else "leave the view"
        stop = f"stop the {words.what}; twice: immediately"
        interrupt = stop if controls.owner else f"leave; the {words.what} continues"
        text = words.help.format(leave=leave, interrupt=interrupt)
        return text_page([Text(cut(line, width)) for line in text.splitlines()], "any key: back", width, height)
    if controls.mode is ScreenMode.ASK:
        answers = (
            f"d  leave the view: the {words.what} continues here, in plain lines",
            f"s  stop the {words.what}: running trials are cancelled; {words.resume} continues it",
        )
        asked = [Text(cut(line, width), "bold reverse") for line in answers]
        asked.append(Text(cut("any other key: back", width), "bold"))
        lines[-len(asked) :] = asked[-height:]
    return lines[:height]


def _table_lines(frame: Frame, width: int, height: int) -> list[Text]:
    state, every = frame.state, list(frame.state.profiles.values())
    profiles = profile_lines(every, width)
    errors = error_lines(every, profiles[0], width)
    notices = notice_lines(frame, width)
    running, finished = state.running, list(reversed(state.finished))
    gap = [Text("")] if height >= 20 else []
    lines = [title_line(frame, width), progress_line(frame, width), *gap]
    left = height - 1 - len(lines)
    least = 4 if left >= 8 else 2  # with its head, at least one profile, how many more there are, and their total
    others = 4 if gap else 2  # in few lines, profiles are worth more than trials
    room = min(len(profiles), max(least, left * 2 // 5)) if len(profiles) > left - others else len(profiles)
    lines += _shortened(profiles, room, "more profiles", width, last=1)
    left = height - 1 - len(lines)
    lines += _shortened(errors, 3 if height >= 24 else 1 if left > 4 else 0, "more profiles with errors", width)
    left = height - 1 - len(lines)
    some = _shortened(notices, _notices_room(height), "more notices", width)
    lines += [*gap, *some] if some and left >= len(some) + len(gap) else []
    left = height - 1 - len(lines) - len(gap)
    room = min(len(running) + 1, max(left * 3 // 5, left - len(finished) - 1 - len(gap)))
    lines += [*gap, *running_lines(frame, running, width, room)] if running and room >= 2 else []
    left = height - 1 - len(lines) - len(gap)
    lines += [*gap, *finished_lines(frame, finished, width, left)] if finished and left >= 2 else []
    lines = lines[: height - 1]
    lines += [Text("")] * (height - 1 - len(lines))
    return [*lines, footer(frame.controls, width)]


def _notices_room(height: int) -> int:
    return 8 if height >= 45 else 5 if height >= 30 else 4 if height >= 24 else 1 + (height >= 14)


def _shortened(lines: list[Text], limit: int, what: str, width: int, last: int = 0) -> list[Text]:
    """Lines, at most `limit`: the first ones, how many more there are, and the `last`."""
    if len(lines) <= limit:
        return lines
    ends = lines[len(lines) - last :]
    if limit <= max(1, 2 * last):
        return [lines[0], *ends][:limit]
    kept = limit - 1 - last
    more = fit(Text(f"  and {len(lines) - last - kept} {what}", "dim"), width)
    return [*lines[:kept], more, *ends]


def title_line(frame: Frame, width: int) -> Text:
    """Return which batch, for how long, how much longer."""
    state, feed = frame.state, frame.feed
    word = "over" if feed.over else "stopping" if frame.stopping else "running" if state.events else "starting"
    until = state.last if feed.over and state.last is not None else frame.now
    elapsed = duration(until - state.began) if state.began is not None else ""
    ending = feed.over or frame.stopping
    left = None if ending else eta_sec(state, frame.now)
    gap = "  ·  " if width >= NARROW else "  "
    pieces = [
        LinePiece(f"{word} {elapsed}".strip(), 0, "bold"),
        LinePiece(
            f"about {duration(left)} left" if left else "" if ending or left is not None else "time left unknown", 1
        ),
    ]
    line = joined(pieces, width, gap)
    named = state.plan is not None and state.plan.name != feed.place
    names = [(feed.place, ""), (state.plan.name, "bold")] if state.plan and named else [(feed.place, "bold")]
    for text, style in names:  # the place is worth more than the title
        room = width - line.cell_len - len(gap)
        if room >= SHORTEST_NAME:
            line = Text.assemble((cut(clean(text), room), style), gap, line, no_wrap=True)
    return line


def progress_line(frame: Frame, width: int) -> Text:
    """Return how far it is, and what it has cost of what it may."""
    total, limits = frame.state.total, frame.state.limits
    held, never, waiting = len(frame.state.held), frame.state.never, frame.state.to_start
    share = percent(total.done / total.planned) if total.planned else ""
    pieces = [
        LinePiece(f"{total.progress} done", 0, "bold"),
        LinePiece(share, 4),
        LinePiece(f"{total.running} running" if total.running else "", 1),
        LinePiece(f"{waiting} waiting" if waiting else "", 5),
        LinePiece(f"{held} held" if held else "", 1, "yellow"),
        LinePiece(f"{never} not run" if never else "", 2, "yellow"),
        LinePiece(f"{total.outcomes['cancelled']} cancelled" if total.outcomes["cancelled"] else "", 6),
        LinePiece(limits.spend or _spend(total), 2),
        LinePiece(limits.shared_spend, 2),
        LinePiece(_deadline(frame), 3, "yellow"),
    ]
    return with_bar(joined(pieces, width), total.done, total.planned, width)


def with_bar(line: Text, done: int, planned: int | None, width: int) -> Text:
    """A line behind a bar of what is done, where there is room for one."""
    room = min(_LONGEST_BAR, width - line.cell_len - 2)
    if room < _SHORTEST_BAR:
        return line
    filled = min(room, room * done // planned) if planned else 0
    return Text.assemble(("█" * filled + "░" * (room - filled), "cyan"), "  ", line, no_wrap=True)


def _spend(total: LiveProfile) -> str:
    if total.cost_known or not total.cost_unknown:
        return cost(total) if total.cost_known else ""
    return "cost unknown"


def _deadline(frame: Frame) -> str:
    left = frame.state.limits.deadline_sec
    if left is None or frame.feed.over:
        return ""
    return f"deadline in {duration(left)}" if left > 0 else "deadline has passed"


def notice_lines(frame: Frame, width: int) -> list[Text]:
    """Return why trials wait, what was said, what could not be read: the most important first."""
    state = frame.state
    held = Counter(reason for _, reason in state.held)
    trials = {reason: plural(number, "trial does", "trials do") for reason, number in held.items()}
    lines = [("warning", f"! held: {number} not start: {reason}") for reason, number in trials.items()]
    for alert in state.alerts.worst_first():
        who = f" [{alert.profile}]" if alert.profile else ""
        since = seconds(alert.since)
        age = f", raised {duration(frame.now - since)} ago" if since is not None else ""
        lines.append((alert.severity, f"! {alert.severity} ({alert.cause}){who}: {alert.message}{age}"))
    if not held and state.limits.shut is not None and not frame.feed.over:
        lines.append(("warning", f"! nothing new starts: {state.limits.shut.reason}"))
    lines += [("warning", f"! {text}") for text in state.limits.over]
    if not (frame.feed.over or frame.stopping):
        lines += [("info", f"- {text}") for text in (*state.limits.shared_lines, *wait_lines(state, frame.now))]
    for notice in state.notices.worst():
        times = f" ({notice.count} times)" if notice.count > 1 else ""
        age = f", {duration(frame.now - notice.time)} ago" if notice.time is not None else ""
        mark = "!" if notice.severity in _SEVERITIES else "-"
        lines.append((notice.severity, f"{mark} {notice.line}{times}{age}"))
    if frame.feed.plan_problem:
        lines.append(("warning", f"! {frame.feed.plan_problem}"))
    if frame.feed.note:
        lines.append(("info", f"- {frame.feed.note}"))
    lines += [("info", f"- {text}") for text in _left_out(state)]
    if state.bad_lines or state.lost_lines:
        lines.append(("warning", f"! events: {plural(state.bad_lines, 'line')} unreadable, {state.lost_lines} lost"))
    lines.sort(key=lambda line: line[0] not in _SEVERITIES)
    return [Text(sentence(clean(text), width), _SEVERITIES.get(kind, "")) for kind, text in lines]


def _left_out(state: LiveState) -> list[str]:
    number = sum(profile.left_out for profile in state.profiles.values())
    if not number or state.plan is None:
        return []
    reasons = list(dict.fromkeys(exclusion.reason for exclusion in state.plan.excluded))
    more = f" (and {plural(len(reasons) - 1, 'further reason')})" if len(reasons) > 1 else ""
    trials = plural(number, "planned trial is", "planned trials are")
    return [f"{trials} left out: {reasons[0] if reasons else 'no reason given'}{more}"]


def footer(controls: Controls, width: int) -> Text:
    """The keys."""
    leave = "q leave or stop" if controls.owner else "q leave"
    pieces = [
        LinePiece(leave),
        LinePiece("? help", 1),
        LinePiece("enter trial", 2),
        LinePiece("j/k or arrows choose", 3),
    ]
    line = joined(pieces, width, "   ")
    line.stylize("dim")
    return line


_HELP = """\
Keys
  j k, arrows      choose a trial, running or finished
  enter            its steps and what its verifier said; h l or left right:
                   the ends of its logs
  escape           back
  ?                this page
  q                {leave}
  Ctrl-C           {interrupt}

Columns
  done             trials that ended, of those planned for the profile
  errors           ended without a verdict; by class where there is room
  of trials        the share passed of the measured trials (the pass rate of the
                   summary is the mean over tasks); the interval is Wilson's,
                   95 %, and takes every trial as independent of the others
  cost, tokens     every try counts, also retried and superseded ones;
                   "unknown" counts the trials that did not say
  mean, p90        time of a trial from start to end
  time left        from the durations of this batch, by task where known
  last sign        since the trial's last event or line of log"""


_WORDS = ModeWords("run", "tbench resume", _HELP)


def tail_lines(frame: Frame, width: int, height: int) -> list[Text]:
    """The end of one log of a trial; scrolling stays within what was read."""
    head, tail = [_about(frame, width)], frame.tail
    if tail is None or not tail.lines:
        said = (tail.note if tail is not None else None) or "nothing yet"
        name = f"{clean(tail.name)}: " if tail is not None and tail.name else ""
        return text_page([*head, Text(cut(clean(name + said), width))], _KEYS, width, height)
    place = f"{tail.index + 1} of {len(tail.names)}"
    part = f"last {size(TAIL_BYTES)} of {size(tail.size)}" if tail.size > TAIL_BYTES else ""
    head.append(joined([LinePiece(clean(tail.name)), LinePiece(f"({place})", 1), LinePiece(part, 2)], width))
    if tail.note:
        head.append(Text(cut(clean(tail.note), width)))
    room = max(1, height - len(head) - 1)
    end = max(min(len(tail.lines), room), len(tail.lines) - frame.controls.scroll)
    shown = tail.lines[max(0, end - room) : end]
    return text_page([*head, *(Text(cut(clean(line), width)) for line in shown)], _KEYS, width, height)


_KEYS = "escape back   h/l other log   j/k scroll"


def _about(frame: Frame, width: int) -> Text:
    chosen = frame.controls.chosen or ("", "")
    trial = frame.state.trials.get(chosen)
    if trial is None:
        return Text(cut(clean(chosen[1]), width), "bold")
    if trial.outcome is not None:
        how = word(trial.outcome) + (f" ({trial.error_class})" if trial.error_class else "")
    elif trial.lost:
        how = "cut off"
    else:
        how = trial.doing + (f", running {duration(frame.now - trial.started)}" if trial.started is not None else "")
    pieces = [LinePiece(clean(trial.name), 0, "bold"), LinePiece(clean(trial.profile), 2), LinePiece(clean(how), 1)]
    return joined(pieces, width)


def text_page(lines: list[Text], keys: str, width: int, height: int) -> list[Text]:
    """Lines as a whole picture: cut or filled up to its height, the keys below."""
    shown = lines[: max(0, height - 1)]
    blank = [Text("")] * (height - 1 - len(shown))
    return [*shown, *blank, Text(cut(keys, width), "dim")][-height:]


SIGNS_SEC = 2.0
_SIGNS_LIMIT = 64
_CHECKS_LIMIT = 20
_READING_SEC = 0.1
"""So long a look reads logs that grew; the next one reads those that it did not come to."""


@dataclass
class BatchPage(Frame):
    """A `Frame` that follows its batch."""

    _signs_at: float = 0.0
    _spent_at: dict[TrialKey, float] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Return whether the batch is over."""
        return self.feed.over

    def poll(self) -> bool:
        """Take in what the batch did."""
        return self.feed.poll(time.time())

    def press(self, key: str) -> None:
        """Take a key; trials are chosen in the order they are shown."""
        trials = [trial.key for trial in [*self.state.running, *reversed(self.state.finished)]]
        self.controls = self.controls.press(key, trials)

    def lines(self, width: int, height: int) -> list[Text]:
        """The picture as it is now."""
        self.now = time.time()
        if not 0 <= self.now - self._signs_at < SIGNS_SEC:
            self._signs_at = self.now
            found = {one.key: last_sign(self.feed.batch, one.key) for one in self.state.running[:_SIGNS_LIMIT]}
            self.signs = {key: sign for key, sign in found.items() if sign is not None}
            self._read_spent()
            self._read_checks()
        self.tail = None
        if self.controls.mode is ScreenMode.TAIL and self.controls.chosen is not None:
            self.tail = read_tail(self.feed.batch, self.controls.chosen, self.feed.secrets, self.controls.file)
            top = max(0, len(self.tail.lines) - 1)
            self.controls = replace(self.controls, scroll=min(self.controls.scroll, top))
        return render(self, width, height)

    def _read_spent(self) -> None:
        """Read what running trials have used, those first that were read longest ago; only of logs that grew since."""
        until = time.monotonic() + _READING_SEC
        running = {one.key for one in self.state.running}
        self.spent = {key: spent for key, spent in self.spent.items() if key in running}
        for key in sorted(self.signs.keys() & running, key=lambda key: self._spent_at.get(key, 0.0)):
            if self.signs[key] <= self._spent_at.get(key, 0.0):
                continue
            if time.monotonic() > until:
                break
            self._spent_at[key] = self.signs[key]
            if (found := spent_of(self.feed.batch, key, self.feed.secrets)) is not None:
                self.spent[key] = found

    def _read_checks(self) -> None:
        """Read which check failed, once of each trial that failed and is among the last."""
        last = [trial for trial in list(self.state.finished)[-_CHECKS_LIMIT:] if trial.outcome == Outcome.FAILED]
        known, self.checks = self.checks, {}
        for trial in last:
            said = known.get(trial.key)
            self.checks[trial.key] = (
                said if said is not None else check_of(self.feed.batch, trial.key, self.feed.secrets)
            )
