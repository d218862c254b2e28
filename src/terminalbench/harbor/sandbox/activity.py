"""A sign of life: the logs of a trial in the local sandbox come out only at its end, so its folder holds this file."""

import time
from pathlib import Path

FILE_NAME = ".activity"
_EVERY_SEC = 1.0


class Activity:
    """Renews the time of a file whenever something happens, at most once a second."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE_NAME
        self._at = 0.0

    def stir(self) -> None:
        """Something happened. Never raises: a sign of life is no reason to die."""
        now = time.monotonic()
        if now - self._at < _EVERY_SEC:
            return
        self._at = now
        try:
            self._file.touch()
        except OSError:
            return
