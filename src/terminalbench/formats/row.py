"""One attempt at one task as another tool recorded it, and what a reader of a format returns. Nothing is trusted."""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.errors import UserError
from terminalbench.text.foreign import flat

LONGEST = 200
"""Letters that are kept of a name; a longer one ends with its digest, so that two of them stay apart."""
_LONGEST_ERROR = 500
_MOST = float(1 << 50)
"""What is larger is no cost, time or number of tokens."""
_WRITTEN = re.compile(r"^\$?\s*(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d*\.?\d+)$")
_TRUE = frozenset(("true", "t", "1", "1.0", "yes", "y", "pass", "passed", "success", "succeeded", "resolved", "correct",
                   "c", "solved", "ok"))  # fmt: skip
_FALSE = frozenset(("false", "f", "0", "0.0", "no", "n", "fail", "failed", "failure", "unresolved", "incorrect", "i",
                    "wrong", "unsolved"))  # fmt: skip
_UNKNOWN = frozenset(("", "none", "null", "na", "n/a", "nan", "-", "?", "unknown"))
_BROKE = frozenset(("error", "errored", "timeout", "timed_out", "timed out", "cancelled", "canceled", "crashed",
                    "exception"))  # fmt: skip
_NOT_RUN = frozenset(("not_run", "not run", "skipped", "pending", "incomplete"))


class ForeignRow(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One attempt at one task by one profile. None is unknown.

    `passed` is the verdict of the source; without one `reward` decides, and without both the attempt broke (`error`
    says how) or did not run. `tokens` is a total whose parts are not told.
    """

    task: str
    profile: str
    dataset: str
    passed: bool | None = None
    reward: float | None = None
    attempt: int | None = None
    not_run: bool = False
    family: str | None = None
    agent: str | None = None
    agent_version: str | None = None
    model: str | None = None
    cost_usd: float | None = None
    tokens: int | None = None
    input_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    seconds: float | None = None
    started_at: str | None = None
    finished_at: str | None = None
    error: str | None = None
    error_type: str | None = None


class ReadOptions(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a person says of results that the files do not: the columns of a table, the profile, the dataset, and from
    which reward on an attempt without a verdict passed.
    """

    columns: dict[str, str] = {}
    profile: str | None = None
    dataset: str | None = None
    format: str | None = None
    pass_at: float | None = None


class RowReader:
    """Collects the rows of one source, and counts by cause what cannot be used of it.

    `beside` are further files that were read, which are of no format by themselves.
    """

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self.rows: list[ForeignRow] = []
        self.rejected: Counter[str] = Counter()
        self.unread: Counter[str] = Counter()
        self.notes: list[str] = []
        self.beside: list[Path] = []
        self.guessed = False

    def add(self, task: object, profile: str, dataset: str, **known: Any) -> None:
        """Keep one attempt; one whose task is not told, or whose reward is no number, is counted as not used."""
        name = identifier(task)
        if name is None:
            self.reject("the task is missing")
            return
        told = known.pop("reward", None)
        reward = share(told)
        if told is not None and known.get("passed") is None and reward is None:
            self.reject("the reward is not a finite number")
            return
        if known.get("passed") is None and reward is not None and self.options.pass_at is not None:
            known["passed"] = reward >= self.options.pass_at
        row = ForeignRow(
            task=name,
            profile=identifier(self.options.profile or profile) or "unnamed",
            dataset=identifier(self.options.dataset or dataset) or "unnamed",
            reward=reward,
            started_at=moment_of(known.pop("started_at", None)),
            finished_at=moment_of(known.pop("finished_at", None)),
            **{key: value for key, value in known.items() if value is not None},
        )
        self.rows.append(row)

    def reject(self, cause: str, count: int = 1) -> None:
        """Count what is not used."""
        self.rejected[cause] += count

    def amount(self, value: object, what: str) -> float | None:
        """A number of at least 0, or unknown; one that is neither is counted as unread."""
        if is_unknown(value):
            return None
        found = written_number(value)
        if found is None or not 0 <= found <= _MOST:
            self.unread[what] += 1
            return None
        return found

    def count(self, value: object, what: str) -> int | None:
        """The same as a whole number."""
        found = self.amount(value, what)
        return None if found is None else round(found)


class ForeignResults(msgspec.Struct, frozen=True, kw_only=True):
    """The attempts that a source holds, each with its number, and how many rows were not used, by cause.

    `guessed`: the profiles are named after the files, which say nothing of them. `files` are those that were read.
    """

    format: str
    rows: list[ForeignRow]
    rejected: dict[str, int]
    notes: list[str]
    files: list[Path]
    digest: str
    guessed: bool = False


def numbered(rows: Sequence[ForeignRow], rejected: Counter[str]) -> list[ForeignRow]:
    """The rows, in the order of the source, with the attempts of each task counted from 1: as they are told, if so.

    A row that tells the attempt of an earlier one of its profile and task is counted as not used.
    """
    told: set[tuple[str, str, str, int]] = set()
    counts: Counter[tuple[str, str, str]] = Counter()
    kept: dict[int, ForeignRow] = {}
    for at, row in sorted(enumerate(rows), key=lambda found: found[1].attempt or 0):
        place = (row.profile, row.dataset, row.task)
        if row.attempt is not None:
            if (*place, row.attempt) in told:
                rejected["an earlier row has the same attempt at the same task"] += 1
                continue
            told.add((*place, row.attempt))
        counts[place] += 1
        kept[at] = msgspec.structs.replace(row, attempt=counts[place])
    return [kept[at] for at in sorted(kept)]


def identifier(value: object) -> str | None:
    """A name as one line of bounded length that can be written and shown; None when there is none."""
    if (
        value is None
        or isinstance(value, bool | dict | list)
        or (isinstance(value, float) and not math.isfinite(value))
    ):
        return None
    text = flat(str(value).encode(errors="replace").decode())
    if len(text) > LONGEST:
        text = f"{text[: LONGEST - 10].rstrip()}~{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return text or None


def message(value: object) -> str | None:
    """Return what a source says of an error, as one line of bounded length; None when it says nothing."""
    if value is None or value is False or (isinstance(value, str) and value.strip().lower() in _UNKNOWN | {"false"}):
        return None
    return flat(str(value)[: 8 * _LONGEST_ERROR].encode(errors="replace").decode(), _LONGEST_ERROR) or None


def number(value: object) -> float | None:
    """A finite number, also one in text; None for anything else."""
    if isinstance(value, bool):
        return float(value)
    if not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def written_number(value: object) -> float | None:
    """A number as people write it: `$0.12`, `12,345`."""
    if isinstance(value, str) and (found := _WRITTEN.match(value.strip())) is not None:
        return number(found[1].replace(",", ""))
    return number(value)


def share(value: object) -> float | None:
    """A reward: a number, or a percentage as a share of one."""
    if isinstance(value, str) and value.strip().endswith("%"):
        found = number(value.strip().removesuffix("%"))
        return None if found is None else found / 100
    return number(value)


def moment_of(value: object) -> str | None:
    """A time as ISO 8601 in UTC; one without a zone is taken for UTC, and what is no time is unknown."""
    if isinstance(value, datetime):
        found = value
    elif isinstance(value, str):
        try:
            found = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    else:
        return None
    try:
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    except (ValueError, OverflowError):
        return None


def is_unknown(value: object) -> bool:
    """Return whether a source leaves a value open."""
    return (
        value is None
        or (isinstance(value, float) and math.isnan(value))
        or (isinstance(value, str) and value.strip().lower() in _UNKNOWN)
    )


class VerdictWord(msgspec.Struct, frozen=True):
    """What a word says of an attempt: its verdict, or that it broke or did not run; `read` is False for other words."""

    passed: bool | None = None
    error: str | None = None
    not_run: bool = False
    read: bool = True


def verdict(value: object) -> VerdictWord:
    """Return what a source's word or number for passed means."""
    if is_unknown(value):
        return VerdictWord()
    if isinstance(value, bool):
        return VerdictWord(value)
    if isinstance(value, int | float):
        return VerdictWord(bool(value)) if value in (0, 1) else VerdictWord(read=False)
    word = str(value).strip().lower()
    if word in _TRUE or word in _FALSE:
        return VerdictWord(word in _TRUE)
    if word in _BROKE:
        return VerdictWord(error=word)
    return VerdictWord(not_run=True) if word in _NOT_RUN else VerdictWord(read=False)


def table_of(value: Any) -> Mapping[str, Any]:
    """The value where it is a table, else an empty one."""
    return value if isinstance(value, dict) else {}


def empty(path: Path, rejected: Mapping[str, int]) -> UserError:
    """The error of a source that holds nothing to use."""
    why = "; ".join(f"{count}: {cause}" for cause, count in rejected.items())
    return UserError(f"contains no usable result{f' ({why})' if why else ''}", where=str(path))
