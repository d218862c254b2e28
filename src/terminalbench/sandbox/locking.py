"""A lock file that is waited for without blocking the event loop."""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncGenerator
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
