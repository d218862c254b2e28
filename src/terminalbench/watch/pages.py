"""The other pages of the live view: the end of a trial's log, the help, the question before leaving. Pure."""

from rich.text import Text

from terminalbench.live.line import clock
from terminalbench.live.model import LiveTrial
from terminalbench.watch.controls import Controls
from terminalbench.watch.layout import Piece, clean, cut, joined
from terminalbench.watch.logs import TAIL_BYTES, LogTail

_HELP = """\
Keys
  j k, arrows      choose a trial, running or finished
  enter            the end of its log; h l or left right: its other logs
  escape           back
  ?                this page
  {leave}
  Ctrl-C           {interrupt}

Columns
  done             trials that ended, of those planned for the profile
  errors           ended without a verdict; by class where there is room
  of trials        the share passed of the measured trials (the pass rate of the
                   summary is the mean over tasks); the interval is Wilson's,
                   95 %, and takes every trial as independent of the others
  cost, tokens     every try counts, also retried and superseded ones;
                   "unknown" and "?" count trials that did not say
  mean, p90        time of a trial from start to end
  time left        from the durations of this batch, by task where known
  last sign        since the trial's last event or line of log"""


def help_lines(controls: Controls, width: int, height: int) -> list[Text]:
    """What the keys do and what the columns mean."""
    leave = "q                leave the view, or stop the run: it asks" if controls.owner else "q                leave"
    interrupt = "stop the run; twice: at once" if controls.owner else "leave; the run goes on"
    lines = _HELP.format(leave=leave, interrupt=interrupt).splitlines()
    return _page([Text(cut(line, width)) for line in lines], "any key: back", width, height)


def ask_lines(width: int) -> list[Text]:
    """The question of `run --watch` before it leaves or stops."""
    lines = [
        "d  leave the view: the run goes on here, in plain lines",
        "s  stop the run: running trials are cancelled; tbench resume goes on later",
        "any other key: back",
    ]
    return [Text(cut(line, width), "bold reverse" if line[0] in "ds" else "bold") for line in lines]


def tail_lines(
    trial: LiveTrial | None, tail: LogTail | None, controls: Controls, now: float, width: int, height: int
) -> list[Text]:
    """The end of one log of a trial; scrolling stays within what was read."""
    head = [_about(trial, controls, now, width)]
    if tail is None or not tail.lines:
        said = (tail.note if tail is not None else None) or "nothing yet"
        name = f"{clean(tail.name)}: " if tail is not None and tail.name else ""
        return _page([*head, Text(cut(clean(name + said), width))], _KEYS, width, height)
    place = f"{tail.index + 1} of {len(tail.names)}"
    part = f"last {TAIL_BYTES // 1024} KB of {tail.size / 1024:,.0f} KB" if tail.size > TAIL_BYTES else ""
    head.append(joined([Piece(clean(tail.name)), Piece(f"({place})", 1), Piece(part, 2)], width))
    if tail.note:
        head.append(Text(cut(clean(tail.note), width)))
    room = max(1, height - len(head) - 1)
    end = max(min(len(tail.lines), room), len(tail.lines) - controls.scroll)
    shown = tail.lines[max(0, end - room) : end]
    return _page([*head, *(Text(cut(clean(line), width)) for line in shown)], _KEYS, width, height)


_KEYS = "escape back   h/l other log   j/k scroll"


def _about(trial: LiveTrial | None, controls: Controls, now: float, width: int) -> Text:
    if trial is None:
        return Text(cut(clean(controls.chosen[1] if controls.chosen else ""), width), "bold")
    if trial.outcome is not None:
        how = f"{trial.outcome}" + (f" ({trial.error_class})" if trial.error_class else "")
    elif trial.lost:
        how = "cut off"
    else:
        how = f"{trial.phase}" + (f", running {clock(now - trial.started)}" if trial.started is not None else "")
    pieces = [Piece(clean(trial.name), 0, "bold"), Piece(clean(trial.profile), 2), Piece(clean(how), 1)]
    return joined(pieces, width)


def _page(lines: list[Text], keys: str, width: int, height: int) -> list[Text]:
    shown = lines[: max(0, height - 1)]
    blank = [Text("")] * (height - 1 - len(shown))
    return [*shown, *blank, Text(cut(keys, width), "dim")][-height:]
