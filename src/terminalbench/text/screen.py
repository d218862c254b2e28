"""The way to a terminal, a pipe or a file for everything that a command says: what would drive a terminal is shown.

Also how far a long piece of work is: told by the work itself, shown by the command that listens, if one does.
"""

import sys
from codecs import getincrementaldecoder
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TextIO

from terminalbench.text.foreign import visible


class _Bytes:
    """Bytes on their way to a screen, as text."""

    def __init__(self, screen: "Screen") -> None:
        self._screen = screen
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def write(self, data: bytes, /) -> int:
        self._screen.write(self._decoder.decode(data))
        return len(data)

    def flush(self) -> None:
        if not self._screen.driver.closed:  # at the end of the process, which closes streams in any order
            self._screen.flush()


class Screen:
    """A stream whose every text is made visible (see `terminalbench.text.foreign`): a foreign one can only be read.

    There is no way around it, bytes included, but `driver`: for the escapes that are our own.
    """

    closed = False

    def __init__(self, stream: TextIO) -> None:
        self.driver = stream
        self.buffer = _Bytes(self)
        self.encoding, self.errors = stream.encoding or "utf-8", stream.errors

    def write(self, text: str, /) -> int:
        """Write a text; its line ends and tabs stay."""
        self.driver.write(visible(text))
        return len(text)

    def flush(self) -> None:
        """Pass on what waits."""
        self.driver.flush()

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return self.driver.isatty()

    def fileno(self) -> int:
        """The number of the file behind it."""
        return self.driver.fileno()

    def writable(self) -> bool:
        """Always."""
        return True


def driver(stream: TextIO) -> TextIO:
    """The stream for escapes of our own, as a live view or a line that renews itself needs them."""
    return getattr(stream, "driver", stream)


def drive(text: str) -> None:
    """Write on the error stream a text whose escapes are ours; what is foreign in it has been made printable."""
    stream = driver(sys.stderr)
    stream.write(text)
    stream.flush()


type Listener = Callable[[str, int, int], None]

_listener: ContextVar[Listener | None] = ContextVar("progress", default=None)


def tell(what: str, done: int, total: int) -> None:
    """Say that `done` of `total` parts of what is being done are over. Costs nothing where no command listens."""
    listener = _listener.get()
    if listener is not None:
        listener(what, done, total)


@contextmanager
def listening(listener: Listener) -> Generator[None]:
    """Hear of the progress of all work in this context."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)
