"""The terminal while the live view has it: keys one by one, signals as data, and everything put back on any way out.

What a key does (`Controls`) is pure: nothing there acts on the run.
"""

import os
import re
import select
import signal
import sys
import termios
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from types import FrameType
from typing import Self

from terminalbench.live.model import TrialKey

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NOTED = (*_ENDING, signal.SIGWINCH, signal.SIGTSTP)
_HANG_UP_SEC = 0.5
RESET = "\x1b[?1049l\x1b[?25h\x1b[0m"
"""Back to the normal screen, the cursor shown, no colours: what a view that was killed could not send."""


class ViewEnd(IntEnum):
    """Why a view ended; of a view in a process of its own the exit code."""

    OVER = 0
    LEFT = 40
    STOP = 41
    INTERRUPTED = 42
    ORPHANED = 43
    TERMINATED = 128 + signal.SIGTERM


def usable() -> bool:
    """Return whether a view can be shown here: a real terminal for both keys and picture, and this process in front of
    it."""
    try:
        if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM", "dumb") == "dumb":
            return False
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError, AttributeError):
        return False


@dataclass
class TerminalInput:
    """What came while waiting: bytes from the keyboard, signals, and whether the other end of `channel` is gone."""

    data: bytes = b""
    signals: set[int] = field(default_factory=set)
    closed: bool = False
    hung_up: bool = False


class Terminal:
    """Holds the keyboard in single-key mode and collects signals. A context manager; of the main thread only."""

    def __init__(self, channel: int | None = None) -> None:
        self.keyboard = sys.stdin.fileno()
        self.channel = channel
        self.last_words = b""
        self._stack = ExitStack()
        self._signals: set[int] = set()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            saved = termios.tcgetattr(self.keyboard)
            stack.callback(termios.tcsetattr, self.keyboard, termios.TCSADRAIN, saved)
            self._woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            stack.callback(os.close, self._woken)
            stack.callback(os.close, waker)
            stack.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(waker, warn_on_full_buffer=False))
            for number in _NOTED:
                stack.callback(signal.signal, number, signal.signal(number, self._note))
            self.single_keys()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def single_keys(self) -> None:
        """Keys arrive at once and are not echoed; Ctrl-C and Ctrl-Z stay signals."""
        mode = termios.tcgetattr(self.keyboard)
        mode[3] &= ~(termios.ICANON | termios.ECHO)
        termios.tcsetattr(self.keyboard, termios.TCSADRAIN, mode)

    def wait(self, seconds: float) -> TerminalInput:
        """Wait for a key, a signal or the end of the channel, at most so long."""
        watched = [self.keyboard, self._woken] + ([self.channel] if self.channel is not None else [])
        ready, _, _ = select.select(watched, [], [], max(0.0, seconds))
        if signal.SIGHUP in self._signals and self.channel is not None and self.channel not in ready:
            # A run that leads the session and is killed: the kernel hangs up before it closes the channel.
            ready += select.select([self.channel], [], [], _HANG_UP_SEC)[0]
        heard = TerminalInput()
        if self._woken in ready:
            os.read(self._woken, 4096)
        if self.keyboard in ready:
            try:
                heard.data = os.read(self.keyboard, 4096)
            except OSError:
                heard.data = b""
            heard.hung_up = not heard.data
        if self.channel is not None and self.channel in ready:
            words = os.read(self.channel, 4096)
            self.last_words += words
            heard.closed = not words
        heard.signals, self._signals = self._signals, set()
        return heard

    def suspend(self, leave: Callable[[], None], enter: Callable[[], None]) -> None:
        """Stop as Ctrl-Z means it, with the terminal put back; go on when continued."""
        mode = termios.tcgetattr(self.keyboard)
        mode[3] |= termios.ICANON | termios.ECHO
        leave()
        termios.tcsetattr(self.keyboard, termios.TCSADRAIN, mode)
        before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, before)
        self.single_keys()
        enter()

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._signals.add(number)


PAGE = 10


class ScreenMode(StrEnum):
    """What fills the screen."""

    TABLE = "table"
    TAIL = "tail"
    HELP = "help"
    ASK = "ask"


@dataclass(frozen=True)
class Controls:
    """Where the person is. `owner` is true in `run --watch`, where leaving is asked about.

    `wish` is how the person wants the view to end.
    """

    owner: bool = False
    mode: ScreenMode = ScreenMode.TABLE
    chosen: TrialKey | None = None
    file: int = 0
    scroll: int = 0
    wish: ViewEnd | None = None

    def press(self, key: str, trials: list[TrialKey]) -> "Controls":
        """The controls after a key; `trials` are those that can be chosen, in the order they are shown."""
        if self.mode is ScreenMode.ASK:
            return self._answer(key)
        if key == "q":
            if self.mode is not ScreenMode.TABLE:
                return replace(self, mode=ScreenMode.TABLE)
            return replace(self, mode=ScreenMode.ASK) if self.owner else replace(self, wish=ViewEnd.LEFT)
        if key == "?":
            return replace(self, mode=ScreenMode.TABLE if self.mode is ScreenMode.HELP else ScreenMode.HELP)
        if self.mode is ScreenMode.HELP:
            return replace(self, mode=ScreenMode.TABLE)
        return self._in_tail(key) if self.mode is ScreenMode.TAIL else self._in_table(key, trials)

    def _answer(self, key: str) -> "Controls":
        wish = {"d": ViewEnd.LEFT, "s": ViewEnd.STOP}.get(key)
        return replace(self, wish=wish) if wish is not None else replace(self, mode=ScreenMode.TABLE)

    def _in_tail(self, key: str) -> "Controls":
        steps = {"up": 1, "k": 1, "down": -1, "j": -1, "page_up": PAGE, "page_down": -PAGE}
        if key in steps:
            return replace(self, scroll=max(0, self.scroll + steps[key]))
        if key in ("right", "l", "left", "h"):
            return replace(self, file=self.file + (1 if key in ("right", "l") else -1), scroll=0)
        if key in ("escape", "enter", "backspace"):
            return replace(self, mode=ScreenMode.TABLE)
        return self

    def _in_table(self, key: str, trials: list[TrialKey]) -> "Controls":
        steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page_up": -PAGE, "page_down": PAGE}
        if key in steps and trials:
            if self.chosen not in trials:
                return replace(self, chosen=trials[0])
            place = trials.index(self.chosen) + steps[key]
            return replace(self, chosen=trials[min(max(place, 0), len(trials) - 1)])
        if key == "enter" and trials:
            chosen = self.chosen if self.chosen in trials else trials[0]
            return replace(self, mode=ScreenMode.TAIL, chosen=chosen, file=0, scroll=0)
        if key == "escape":
            return replace(self, chosen=None)
        return self


_SEQUENCES = {"A": "up", "B": "down", "C": "right", "D": "left", "5~": "page_up", "6~": "page_down"}
_CHARACTERS = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace", "\x1b": "escape"}
_KEY = re.compile(r"\x1b[\[O]([^A-Za-z~]*[A-Za-z~]?)|(.)", re.DOTALL)


def keys(data: bytes) -> list[str]:
    """The keys in what a terminal sent. Unknown escape sequences are no keys."""
    found = _KEY.findall(data.decode(errors="ignore"))
    named = (_CHARACTERS.get(character, character) or _SEQUENCES.get(sequence) for sequence, character in found)
    return [key for key in named if key is not None]
