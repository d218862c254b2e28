"""A line on the terminal that renews itself while a command works; nothing when the command is piped."""

import shutil
import sys
import time
from collections.abc import Callable
from functools import wraps

from terminalbench.text.foreign import ended, printable
from terminalbench.text.numbers import duration
from terminalbench.text.progress import listening
from terminalbench.text.screen import drive


class StatusLine:
    """One line on the error stream of a terminal, renewed at most every `refresh_sec`; elsewhere nothing."""

    def __init__(self, *, quiet: bool, refresh_sec: float = 0.2) -> None:
        self.live = sys.stderr.isatty() and not quiet
        self.refresh_sec = refresh_sec
        self.told_at = 0.0

    def say(self, text: str) -> None:
        """Put a text on the line, made printable and cut between words to the width of the terminal."""
        if self.live:
            width = shutil.get_terminal_size().columns - 1
            said = printable(text)
            drive(f"\r\x1b[K{said if len(said) <= width else ended(said, said[: width - 1])}")

    def renew(self, text: str) -> None:
        """Say a line as `say` does, unless that was just done."""
        if self.is_time():
            self.told_at = time.monotonic()
            self.say(text)

    def is_time(self) -> bool:
        """Return whether the line may be renewed."""
        return self.live and time.monotonic() - self.told_at >= self.refresh_sec

    def done(self) -> None:
        """Leave the line."""
        self.say("")


class ProgressLine(StatusLine):
    """The progress of a piece of work, and how long it still takes, once it has taken `after_sec`."""

    after_sec = 2.0

    def __init__(self, *, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(quiet=quiet)
        self.clock = clock
        self.what: str | None = None
        self.began = 0.0

    def tell(self, what: str, done: int, total: int, note: str = "") -> None:
        """Show that `done` of `total` parts are over; the last leaves the line."""
        now = self.clock()
        if what != self.what:
            self.what, self.began = what, now
        if done >= total:
            self.done()
            self.what = None
        elif now - self.began >= self.after_sec:
            left = f", about {duration((now - self.began) / done * (total - done))} left" if done else ""
            self.renew(f"{what} {done:,}/{total:,}{note}{left}")


def working[**P, T](command: Callable[P, T]) -> Callable[P, T]:
    """A command whose work tells how far it is: shown on a terminal, unless it prints JSON."""

    @wraps(command)
    def called(*args: P.args, **named: P.kwargs) -> T:
        if not sys.stderr.isatty():
            return command(*args, **named)
        shown = ProgressLine(quiet=bool(named.get("as_json")))
        with listening(shown.tell):
            try:
                return command(*args, **named)
            finally:
                shown.done()

    return called
