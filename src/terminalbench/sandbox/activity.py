"""Signs of life: the logs of a trial in the local sandbox come out only at its end, so its folder holds this file.

Its time is that of the last sign, and it tells how many answers 429 the agent's logs show so far. It is ours: the
agent cannot reach it, and nothing of what the agent wrote stands in it.
"""

import re
import time
from pathlib import Path

import msgspec

from terminalbench.files import read_plain, write_json

HITS = re.compile(
    r"\"(?:error_)?status(?:_code)?\\*\":\s?429\b|rate_limit_error|\bRateLimitError\b|\b429 Too Many Requests",
    re.IGNORECASE,
)
"""An answer 429 of a provider, as clients log it."""


FILE_NAME = ".activity"
_EVERY_SEC = 1.0
_SIZE_LIMIT = 4096


class _Signs(msgspec.Struct):
    rate_limit_hits: int = 0


def live_hits(trial_dir: Path) -> int:
    """How many answers 429 a running trial in the local sandbox has met so far, as far as it is known."""
    try:
        return msgspec.json.decode(read_plain(trial_dir / FILE_NAME, _SIZE_LIMIT) or b"{}", type=_Signs).rate_limit_hits
    except (msgspec.DecodeError, UnicodeDecodeError):
        return 0


class Activity:
    """Renews the file whenever something happens, at most once a second. Never raises: it is no reason to die."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE_NAME
        self._at = 0.0
        self._hits = 0

    def stir(self) -> None:
        """Something happened."""
        now = time.monotonic()
        if now - self._at < _EVERY_SEC:
            return
        self._at = now
        try:
            self._file.touch()
        except OSError:
            return

    def hit(self, hits: int) -> None:
        """The logs show so many answers 429 more."""
        if hits <= 0:
            return
        self._hits += hits
        try:
            write_json(self._file, _Signs(self._hits))
        except OSError:
            return
