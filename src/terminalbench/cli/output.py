"""What a command writes: output whose reader may leave, as `head` does, JSON, text, a line that renews itself.

Where the reader has left, the rest goes nowhere, and the exit code stays the command's.
"""

import errno
import io
import os
import sys
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, TextIO, cast, override

import click

from terminalbench.text.foreign import ended, printable, printable_json
from terminalbench.text.numbers import duration
from terminalbench.text.screen import Screen, drive, driver, listening
from terminalbench.text.table import wrapped

_GONE = (errno.EPIPE, errno.EIO, errno.EBADF)
"""The reader has closed the pipe, the terminal has hung up, the handle was closed."""


class _Outlet(io.FileIO):
    must_be_read = False
    messages = False
    lost: OSError | None = None

    @override
    def write(self, data: Any, /) -> int:
        try:
            return cast(int, super().write(data))  # None where it would block: Python's own error says so
        except OSError as error:
            wanted = not (self.messages or error.errno in _GONE)
            if self.must_be_read and not wanted:
                raise
            if wanted and self.lost is None:  # a full disk; the command goes on, and says at its end what was lost
                self.lost = error
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)
        if self.must_be_read and self.lost is not None:
            raise self.lost
        return memoryview(data).nbytes


def print_json(value: Any, *, in_line: bool = False) -> None:
    """Print a value as JSON, or as one line of it."""
    from terminalbench.json_files import encode_json, encode_line

    click.echo(printable_json((encode_line if in_line else encode_json)(value).decode()), nl=False)


def say(*lines: str, err: bool = False) -> None:
    """Print lines that fit the terminal, long ones continued below: what is foreign in them is made printable."""
    click.echo("\n".join(wrapped(map(printable, lines), text_width())), err=err)


def text_width() -> int:
    """Return how wide to write: as the terminal, within reason; a file gets the default."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return 100
    from shutil import get_terminal_size  # it loads all that unpacks archives

    return min(max(get_terminal_size((100, 24)).columns, 80), 120)


def take_streams() -> None:
    """Drop from here on what no reader takes; every text that is written can only be read (see `Screen`).

    A stream that was closed before the start gets a file that holds nothing: else the first file that is opened would
    have its number, and get what is written to it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    sys.stdout = _screen(sys.stdout, 1)
    sys.stderr = _screen(sys.stderr, 2)


def end_with_the_reader() -> None:
    """End with a BrokenPipeError when the reader is gone: for a command that runs for as long as it is read."""
    outlet = _outlet(sys.stdout)
    if outlet is not None:
        outlet.must_be_read = True


def lost_output() -> OSError | None:
    """Return why something that a reader waits for could not be written, such as a full disk; None: all of it was."""
    outlet = _outlet(sys.stdout)
    return outlet.lost if outlet is not None else None


def _outlet(stream: TextIO) -> _Outlet | None:
    raw = getattr(getattr(driver(stream), "buffer", None), "raw", None)
    return raw if isinstance(raw, _Outlet) else None


def _screen(stream: TextIO | None, number: int) -> TextIO:
    return cast(TextIO, stream if isinstance(stream, Screen) else Screen(_patient(stream, number)))


def _patient(stream: TextIO | None, number: int) -> TextIO:
    if stream is None:  # it was closed: Python has none
        stream = open(number, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  for the whole process
    if not isinstance(stream, io.TextIOWrapper) or not _has_file(stream):
        return stream
    stream.flush()
    outlet = _Outlet(stream.fileno(), "wb", closefd=False)
    outlet.messages = number == 2
    return io.TextIOWrapper(
        io.BufferedWriter(outlet),
        encoding=stream.encoding if stream.encoding != "ascii" else "utf-8",
        errors="replace",  # a terminal that knows no UTF-8 shows "?" instead of an error
        line_buffering=stream.line_buffering or stream.write_through,
    )


def _has_file(stream: TextIO) -> bool:
    try:
        return stream.fileno() >= 0
    except (OSError, ValueError):
        return False


class StatusLine:
    """One line on the error stream of a terminal, renewed at most every `refresh_sec`; elsewhere nothing."""

    def __init__(self, *, quiet: bool, refresh_sec: float = 0.2) -> None:
        self.quiet = quiet
        self.live = sys.stderr.isatty() and not quiet
        self.refresh_sec = refresh_sec
        self.told_at = 0.0

    def say(self, text: str) -> None:
        """Put a text on the line, made printable and cut to the width of the terminal: behind a comma, or a word."""
        if self.live:
            from shutil import get_terminal_size  # it loads all that unpacks archives

            width = get_terminal_size().columns - 1
            said = printable(text)
            parts = said[:width].rpartition(", ")[0]
            short = f"{parts}…" if 2 * len(parts) > width else ended(said, said[: width - 1])
            drive(f"\r\x1b[K{said if len(said) <= width else short}")

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

    def keep(self, text: str) -> None:
        """Say something that stays, on a line of its own, unless all is to be quiet."""
        if not self.quiet:
            self.done()
            click.echo(printable(text), err=True)


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
