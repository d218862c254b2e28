"""The terminal while the live view has it: keys one by one, signals as data, and everything put back on any way out."""

import os
import select
import signal
import sys
import termios
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import IntEnum
from types import FrameType
from typing import Self

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
