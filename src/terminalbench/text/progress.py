"""How far a long piece of work is: told by the work itself, shown by the command that listens, if one does."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

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
