"""The signals that end a command, each in one way: what runs is ended, what was finished is kept, exit code 130."""

import signal
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
ASKED_FOR = (signal.SIGINT, signal.SIGTERM)
"""A run hears these in any case: a script's `&` makes it ignore SIGINT, and could only be killed."""


def not_ignored() -> list[signal.Signals]:
    """Those that whoever started this process did not have it ignore (`nohup`, a shell script's `&`)."""
    return [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]


def take(numbers: Iterable[signal.Signals], handler: Callable[[int, object], None]) -> dict[signal.Signals, object]:
    """Have signals handled; returns what handled them before."""
    return {number: signal.signal(number, handler) for number in numbers}


@contextmanager
def heard(note: Callable[[], None]) -> Generator[None]:
    """Only note a signal that would end the process in here."""
    before = take({*not_ignored(), *ASKED_FOR}, lambda _number, _frame: note())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # ty: ignore[invalid-argument-type] - as it was


@contextmanager
def put_off() -> Generator[None]:
    """Put off every signal in here, where something must be done as a whole. For moments only."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
