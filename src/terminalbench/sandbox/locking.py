"""A lock file, and work in a thread, that are waited for without blocking the event loop."""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

_PAUSE_SEC = 0.02


@contextlib.asynccontextmanager
async def exclusive(path: Path) -> AsyncGenerator[None]:
    """Hold a lock file; waiting can be cancelled."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            await _lock(handle)
            if os.fstat(handle).st_nlink:  # else a collector took it for one of something that is gone
                yield
                return
        finally:
            os.close(handle)


async def _lock(handle: int) -> None:
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await asyncio.sleep(_PAUSE_SEC)


async def to_its_end[T](work: Callable[[], T]) -> T:
    """Return what work in a thread returns. A cancel is raised when it has ended: nothing can stop it half-way."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise
