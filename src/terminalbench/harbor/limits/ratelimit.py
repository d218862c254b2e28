"""The wait that a model provider asked for, read from the files that an agent left behind.

Agents pass on what the provider said in many spellings. The texts are the agent's own words, so what is found is
bounded by `LONGEST_ASKED_SEC`.
"""

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from terminalbench.files import tail_plain
from terminalbench.records.trial import ProviderWait
from terminalbench.sandbox import activity

LONGEST_ASKED_SEC = 900.0
"""No provider, and no agent that says so, makes a batch wait longer than this."""

_TAIL_BYTES = 256 << 10
_FILES = 64
_NUMBER = r"\d{1,15}(?:\.\d{1,9})?"
_UNIT = r"(?:ms|milliseconds?|msecs?|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)(?![A-Za-z])"
_DURATION = rf"(?:{_NUMBER}\s?{_UNIT}(?:,?\s?(?:and\s)?(?={_NUMBER}\s?{_UNIT}))?)+"
_DATE = r"[A-Z][a-z]{2}, \d{1,2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT"
_TIME = r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:Z|[+-]\d{2}:?\d{2})?"
_VALUE = rf"(?P<value>{_DATE}|{_TIME}|{_DURATION}|{_NUMBER})"
# Between a name and its value: a header, JSON, JSON inside JSON, a Python list of byte pairs.
_GAP = r"[\s\"'\\:=,(\[{]{0,12}(?:b['\"])?(?:(?i:of|is|for|seconds)\b[\s:=]{0,3})?"

_MILLISECONDS = rf"(?P<milli>(?:retry[-_ ]?(?:after|delay|in)[-_ ]?(?:ms|millis(?:econds)?))\b{_GAP}(?P<ms>{_NUMBER}))"
_HEADER = rf"(?:retry[-_ ]?(?:after|delay)(?:[-_ ]?(?:secs?|seconds))?\b{_GAP}{_VALUE})"
_WORDS = rf"(?:(?:re)?try(?:ing)?(?: again)? (?:in|after) (?P<words>{_DURATION}))"
_LIMIT = r"(?:usage limit reached\|(?P<epoch>\d{10,13}))"
_ASKED = re.compile(rf"(?<![A-Za-z])(?:{_MILLISECONDS}|{_HEADER}|{_WORDS}|{_LIMIT})", re.IGNORECASE)
_RESET = re.compile(
    rf"(?<![A-Za-z-])(?:anthropic-ratelimit-[a-z-]{{1,40}}-reset|x-ratelimit-reset(?:-[a-z-]{{1,20}})?){_GAP}{_VALUE}",
    re.IGNORECASE,
)
_PART = re.compile(rf"({_NUMBER})\s?({_UNIT})", re.IGNORECASE)
_FACTORS = {"ms": 0.001, "h": 3600.0, "m": 60.0, "s": 1.0}
_EPOCH = 1e9
_EPOCH_MS = 1e12


def asked_wait(text: str, now: datetime) -> float | None:
    """Seconds from `now` that the last request to wait in `text` asks for; None when there is none.

    Never less than 0, never more than `LONGEST_ASKED_SEC`. What asks explicitly counts; the times at which limits are
    renewed count only without it, and then the latest does. A date that has passed asks for nothing.
    """
    asked = [wait for match in _ASKED.finditer(text) if (wait := _explicit(match, now)) is not None]
    if asked:
        return asked[-1]
    resets = [wait for match in _RESET.finditer(text) if (wait := _seconds(match["value"], now)) is not None]
    return max(resets, default=None)


def wait_in_logs(trial_dir: Path, now: datetime) -> float | None:
    """The longest wait that a file of the trial's agent, or its exception, asks for at its end."""
    waits = (asked_wait(text, now) for text in log_tails(trial_dir))
    return max((wait for wait in waits if wait is not None), default=None)


def count_hits(trial_dir: Path, wait: ProviderWait | None = None) -> int:
    """Return how many answers 429 a trial met: by its client's own account, else by the log that tells of most."""
    if wait is not None:
        return wait.refused.get("429", 0)
    return max((activity.count_hits(text) for text in log_tails(trial_dir)), default=0)


def pressure_told(asked_sec: float | None, hits: int) -> dict[str, Any]:
    """Return what the event of a trial's end says: how long the provider asked to wait, how often it said 429."""
    asked = {} if asked_sec is None else {"asked_wait_sec": round(asked_sec, 3)}
    return asked | ({"rate_limit_hits": hits} if hits else {})


def log_tails(trial_dir: Path) -> Iterator[str]:
    """The ends of the trial's exception and of the agent's newest log files; links and pipes are passed over."""
    files = [trial_dir / "exception.txt"]
    folders = [trial_dir / "agent", *sorted(trial_dir.glob("steps/*/agent"))]
    logs = [Path(root) / name for folder in folders for root, _, names in os.walk(folder) for name in names]
    files += sorted(logs, key=_changed, reverse=True)[:_FILES]
    tails = (tail_plain(path, _TAIL_BYTES) for path in files)
    return (tail for tail in tails if tail is not None)


def _changed(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def _explicit(match: re.Match[str], now: datetime) -> float | None:
    if match["ms"] is not None:
        return _bounded(float(match["ms"]) / 1000)
    return _seconds(match["value"] or match["words"] or match["epoch"], now)


def _seconds(value: str, now: datetime) -> float | None:
    """Return what a value means: a date, a duration, an epoch, else seconds."""
    if re.fullmatch(_NUMBER, value):
        number = float(value)
        if number < _EPOCH:
            return _bounded(number)
        return _ahead(number / (1000 if number >= _EPOCH_MS else 1) - now.timestamp())
    if re.match(r"\d{4}-", value) or value[0].isalpha():
        moment = _moment(value)
        return None if moment is None else _ahead((moment - now).total_seconds())
    parts = [(float(number), unit.lower()) for number, unit in _PART.findall(value)]
    return _bounded(sum(number * _factor(unit) for number, unit in parts))


def _factor(unit: str) -> float:
    return _FACTORS["ms"] if unit.startswith(("ms", "milli")) else _FACTORS[unit[0]]


def _moment(value: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(value) if value[0].isalpha() else datetime.fromisoformat(value)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _ahead(seconds: float) -> float | None:
    return _bounded(seconds) if seconds > 0 else None


def _bounded(seconds: float) -> float:
    return max(0.0, min(seconds, LONGEST_ASKED_SEC))
