"""The entry of every command line. It takes the signals of the process before anything that takes time is loaded."""

import atexit
import gc
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

_INTERRUPTED = 130  # `errors.EXIT_INTERRUPTED`, which takes too long to load
_REPEAT_SEC = 1.0
_NO_WINDOWS = "error: terminalbench runs on Linux and macOS; on Windows, install and use it in WSL 2 (wsl --install)\n"
_GARBAGE = 50_000  # objects more than before, after which it is looked for: what a command loads is none


def main(arguments: Sequence[str], prog_name: str = "tbench") -> int:
    """Run one command and return its exit code; every error is one clear message on standard error."""
    from terminalbench.cli.app import run_command

    return run_command(arguments, prog_name)


def entry(first: Sequence[str] = (), prog_name: str = "tbench") -> None:
    """The console script `tbench`: the command is `first` and the arguments of the process."""
    if sys.platform == "win32":  # its signals and locks are others: nothing more is loaded
        sys.stderr.write(_NO_WINDOWS)
        sys.exit(2)
    from terminalbench.runner import signals

    _interrupt_by_signals()
    gc.set_threshold(_GARBAGE)
    try:
        code = main([*first, *sys.argv[1:]], prog_name)
    except KeyboardInterrupt:  # while the command was being loaded
        if sys.stderr is not None:  # it may be closed
            sys.stderr.write("interrupted: nothing was started\n")
        code = _INTERRUPTED
    # From here on nothing is to be kept, and there is nobody to catch an exception.
    signals.take(signals.not_ignored(), lambda _number, _frame: os._exit(_INTERRUPTED))
    _leave(code)


def _leave(code: int) -> NoReturn:
    """End as `sys.exit` does, without taking apart what was loaded: that takes longer than many a command."""
    if (threading := sys.modules.get("threading")) is not None:
        threading._shutdown()  # waits for threads that are to end by themselves
    atexit._run_exitfuncs()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with suppress(OSError, ValueError):  # nobody reads it, or it is closed
            stream.flush()
    os._exit(code)


def _interrupt_by_signals() -> None:
    """Every signal that ends a command is an interrupt.

    One that comes with the first, as a closing terminal sends them, is the same; a later one ends us at once.
    """
    from terminalbench.runner import signals

    came: list[float] = []

    def interrupt(_number: int, _frame: object) -> None:
        came.append(time.monotonic())
        if len(came) == 1:
            raise KeyboardInterrupt
        if came[-1] - came[0] > _REPEAT_SEC:
            os._exit(_INTERRUPTED)

    signals.take(signals.not_ignored(), interrupt)


if __name__ == "__main__":
    entry()
