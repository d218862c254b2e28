"""Standard output whose reader may leave, as `head` does: the rest goes nowhere, the exit code stays the command's."""

import io
import os
import stat
import sys
from typing import Any, cast, override


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


def let_readers_leave() -> None:
    """From here on, what nobody reads any more is dropped."""
    old = sys.stdout
    if not isinstance(old, io.TextIOWrapper) or not _is_pipe(old.fileno()):
        return
    old.flush()
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Pipe(old.fileno(), "wb", closefd=False)),
        encoding=old.encoding,
        errors=old.errors,
        line_buffering=old.line_buffering or old.write_through,
    )


def end_with_the_reader() -> None:
    """For a command that goes on for as long as it is read: a BrokenPipeError ends it."""
    _Pipe.must_be_read = True


def _is_pipe(handle: int) -> bool:
    mode = os.fstat(handle).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
