"""Output whose reader may leave, as `head` does: the rest goes nowhere, the exit code stays the command's."""

import io
import os
import shutil
import stat
import sys
from typing import Any, TextIO, cast, override

import click


class _Pipe(io.FileIO):
    must_be_read = False

    @override
    def write(self, data: Any, /) -> int:
        try:
            return cast(int, super().write(data))  # None where it would block: Python's own error says so
        except BrokenPipeError:
            if self.must_be_read:
                raise
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)
        return memoryview(data).nbytes


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    from terminalbench.files import encode_json

    click.echo(encode_json(value).decode(), nl=False)


def text_width() -> int:
    """How wide to write: as the terminal, within reason; a file gets the default."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return 100
    return min(max(shutil.get_terminal_size((100, 24)).columns, 80), 120)


def let_readers_leave() -> None:
    """From here on, what nobody reads any more is dropped: results and messages, which may share a pipe."""
    sys.stdout, sys.stderr = _patient(sys.stdout), _patient(sys.stderr)


def end_with_the_reader() -> None:
    """For a command that goes on for as long as it is read: a BrokenPipeError ends it."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, _Pipe):
        raw.must_be_read = True


def _patient(stream: TextIO) -> TextIO:
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError, AttributeError):  # no file behind it, or closed
        return stream
    if not isinstance(stream, io.TextIOWrapper) or not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return stream
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Pipe(stream.fileno(), "wb", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering or stream.write_through,
    )
