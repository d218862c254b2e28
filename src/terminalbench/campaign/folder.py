"""The folder of a campaign: held by one process, gone on with as it was begun, its reports written again as it runs."""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from terminalbench.errors import EXIT_USAGE, UserError
from terminalbench.locks import LockHeld, lock
from terminalbench.text.numbers import plural

_DIFFERENCES = 12
_PAUSES = 20
"""Reports are written at most so small a part of the time: a twentieth."""


@contextmanager
def held(file: Path, what: str, folder: Path, hint: str) -> Generator[None]:
    """Hold the lock of a campaign; where another process has it, nothing is started, and `hint` is the next step."""
    try:
        with lock(file, what):
            yield
    except LockHeld as error:
        error.where, error.hint, error.exit_code = str(folder), hint, EXIT_USAGE
        raise


def refuse_differences(found: Sequence[str], folder: Path, hint: str) -> None:
    """Raise UserError with what is asked for otherwise than when the campaign was begun, if anything."""
    if not found:
        return
    more = [f"and {plural(len(found) - _DIFFERENCES, 'more difference')}"] if len(found) > _DIFFERENCES else []
    listed = "\n  ".join([*found[:_DIFFERENCES], *more])
    raise UserError(f"was begun with other options:\n  {listed}", where=str(folder), hint=hint)


@dataclass
class LiveReports:
    """Reports of a campaign that runs: written by `tick` when they are `due`, at most a twentieth of the time."""

    write: Callable[[], object]
    least_sec: float
    due: bool = False
    _next: float = 0.0

    def tick(self) -> None:
        """Write them, if something was measured since the last time and that is long enough ago."""
        began = time.monotonic()
        if not self.due or began < self._next:
            return
        self.due = False
        self.write()
        now = time.monotonic()
        self._next = now + max(self.least_sec, _PAUSES * (now - began))
