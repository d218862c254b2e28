"""The entries of memory.jsonl, one line each, and what each makes of the lessons it is about. Pure but for `read_part`.

A line begins with its key, a digest of the rest, and names the key of the one before it. So an entry that was edited,
and one that is missing, are found; and two logs that went different ways can be merged line by line, as `git merge`
with `merge=union` does: what both have is the same line. Lines of earlier versions have no key: theirs is the digest of
the whole line.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from terminalbench.decode import NOT_DECODED, decoder
from terminalbench.json_files import encode_line
from terminalbench.records.lesson import Evidence, Lesson, LessonKind, LessonScope, LessonState, Utility
from terminalbench.records.trial import TaskRef

BY_EFFECT = "utility"
"""Who edits, retires and brings back lessons by their measured effect."""


class Operation(StrEnum):
    """All that can happen to memory. There is no rewriting of many lessons at once, and no deletion."""

    ADD = "add"
    EDIT = "edit"
    MERGE = "merge"
    RETIRE = "retire"


class Trigger(StrEnum):
    """Why there was a reflection, the most telling first; every entry of the log that comes of one names it."""

    REGRESSION = "regression"
    """A night's alert; or a profile fails each trial of a task that it passed three times or more, and never failed."""
    FIRST_SUCCESS = "first_success"
    """A profile passed a task for the first time, after two failures or more."""
    REPEATED_FAILURE = "repeated_failure"
    """Two trials or more failed with the same signature."""
    BATCH = "batch"
    """A batch has ended; nothing else was special about it."""
    ON_DEMAND = "on_demand"
    """A person asked for it."""


class LessonChanges(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """New values of some fields of a lesson; what is not set stays. An approval is a change of `state` to active."""

    do: str | UnsetType | None = UNSET
    avoid: str | UnsetType | None = UNSET
    kind: LessonKind | UnsetType = UNSET
    scope: LessonScope | UnsetType = UNSET
    scope_value: str | UnsetType | None = UNSET
    tags: list[str] | UnsetType = UNSET
    importance: float | UnsetType = UNSET
    evidence: list[Evidence] | UnsetType = UNSET
    source_tasks: list[TaskRef] | UnsetType = UNSET
    state: LessonState | UnsetType = UNSET
    reason: str | UnsetType | None = UNSET
    utility: Utility | UnsetType | None = UNSET
    effects: list[Utility] | UnsetType = UNSET
    written_from: list[TaskRef] | UnsetType = UNSET

    def of(self, lesson: Lesson) -> Lesson:
        """The lesson with the changes made."""
        return msgspec.structs.replace(lesson, **self.values())

    def values(self) -> dict[str, object]:
        """Return what is set, by field."""
        found = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return {name: value for name, value in found if value is not UNSET}


class CountedTrial(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A measured trial that lessons were eligible for: which, which of them it was shown, and whether it passed.

    `group` are its task and its policy, `chances` the probabilities of showing each eligible lesson (none in older
    logs), `family` is that of its task. `own` are eligible lessons that come from its task or its family, `old` those
    that had another text than when it was counted.
    """

    id: str
    group: str
    passed: bool
    eligible: list[str]
    shown: list[str] = []
    own: list[str] = []
    old: list[str] = []
    model: str | None = None
    simulated: bool = False
    chances: list[float] = []
    family: str | None = None


class MemoryEntry(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line of the log: an operation on the lesson `id`.

    `seq` is its number in the log of its writer; after a merge of two logs it stands twice, so nothing relies on it.
    `after` is the key of the entry that the writer saw last: a gap is found by it. The key of an entry is a digest of
    its line, which begins with it: an entry that was changed is found by that.
    `lesson` is that of an ADD; `changes` are those of an EDIT or a MERGE; `absorbed` are the lessons that a MERGE takes
    up into `id`. `episode` is where a lesson of reflection came from: no more than three come from one; `trigger` is
    what made us look at it. `trials` are those that an EDIT of the effect has counted, each once in the whole log.
    """

    op: Operation
    id: str
    by: str
    seq: int = 0
    after: str = ""
    time: str = ""
    reason: str | None = None
    lesson: Lesson | None = None
    changes: LessonChanges | None = None
    absorbed: list[str] = []
    episode: str | None = None
    trigger: Trigger | None = None
    trials: list[CountedTrial] = []


class UnfitEntry(Exception):
    """An entry that cannot be applied; the message says why."""


def applied(entry: MemoryEntry, find: Callable[[str], Lesson | None]) -> list[Lesson]:
    """The lessons that an entry makes or changes, as they are after it. Raises Unfit."""
    before = find(entry.id)
    if entry.op is Operation.ADD:
        if entry.lesson is None or entry.lesson.id != entry.id:
            raise UnfitEntry("it adds a lesson without its text")
        if before is not None:
            raise UnfitEntry(f"it adds {entry.id}, which already exists")
        return [msgspec.structs.replace(entry.lesson, created_at=entry.time, updated_at=entry.time)]
    if before is None:
        raise UnfitEntry(f"there is no lesson {entry.id}")
    if entry.op is Operation.RETIRE:
        retired = {"state": LessonState.RETIRED, "reason": entry.reason}
        return [msgspec.structs.replace(before, **retired, updated_at=entry.time)]
    after = (entry.changes or LessonChanges()).of(before)
    changed = [msgspec.structs.replace(after, updated_at=entry.time)]
    for name in entry.absorbed if entry.op is Operation.MERGE else ():
        found = find(name)
        if found is None or name == entry.id:
            raise UnfitEntry(f"it merges {name}, which is not another lesson")
        changed.append(
            msgspec.structs.replace(
                found,
                state=LessonState.RETIRED,
                reason=entry.reason,
                superseded_by=entry.id,
                updated_at=entry.time,
            )
        )
    return changed


_KEY_PREFIX = b'{"key":"'
_DIGITS = 24
_BODY_START = len(_KEY_PREFIX) + _DIGITS + 2
_ENTRY = decoder(MemoryEntry)


@dataclass(frozen=True)
class LogLine:
    """A line of the log. `edited`: it is not the one that its key was made for. `reason`: why it cannot be read."""

    number: int
    key: str
    text: bytes
    entry: MemoryEntry | None = None
    edited: bool = False
    reason: str = ""

    @property
    def cut_off(self) -> bool:
        """Return whether it ends in the middle of a value, as a writer that was killed leaves it."""
        return "truncated" in self.reason  # so msgspec says it; it has no type of its own for that


@dataclass
class LogPart:
    """The complete lines of a log from some byte on, and where they end."""

    lines: list[LogLine] = field(default_factory=list)
    offset: int = 0

    def mark_after(self, mark: str) -> str:
        """Return the mark of a log that had this one before these lines: the same only for the same lines."""
        for line in self.lines:
            mark = _digest(mark.encode() + line.text)
        return mark


def written(entry: MemoryEntry) -> tuple[str, bytes]:
    """Return the key of an entry, and its line."""
    body = encode_line(entry).rstrip(b"\n")[1:]
    key = _digest(body)
    return key, b'{"key":"%b",%b\n' % (key.encode(), body)


def read_part(log: Path, offset: int = 0, end: int | None = None) -> LogPart:
    """Return the complete lines of a log from a byte on, or up to another one; none of a log that is not there."""
    try:
        with log.open("rb") as stream:
            stream.seek(offset)
            data = stream.read() if end is None else stream.read(end - offset)
    except FileNotFoundError:
        return LogPart(offset=offset)
    complete = data.rfind(b"\n") + 1
    return LogPart(list(_lines(data[:complete])), offset + complete)


def _lines(data: bytes) -> Iterator[LogLine]:
    for number, text in enumerate(data.split(b"\n"), start=1):
        if not text.strip():
            continue
        keyed = text.startswith(_KEY_PREFIX) and text[_BODY_START - 2 : _BODY_START] == b'",'
        key = text[len(_KEY_PREFIX) : _BODY_START - 2].decode(errors="replace") if keyed else _digest(text)
        try:
            entry = _ENTRY.decode(text)
        except NOT_DECODED as error:
            yield LogLine(number, key, text, reason=str(error))
            continue
        yield LogLine(number, key, text, entry, edited=keyed and _digest(text[_BODY_START:]) != key)


def missing_before(lines: Iterable[LogLine], is_known: Callable[[str], bool]) -> Iterator[LogLine]:
    """Yield the lines before which others are missing: the entry that their writer saw last stands nowhere above.

    `is_known` says whether an entry of this key was read earlier.
    """
    seen, previous = set[str](), None
    for line in lines:
        entry = line.entry
        if entry is not None:
            gap = not entry.after and previous is not None and entry.seq > previous + 1
            if gap or (entry.after and entry.after not in seen and not is_known(entry.after)):
                yield line
            previous = entry.seq
        if entry is not None or not line.cut_off:
            seen.add(line.key)


def chained(entries: Iterable[MemoryEntry]) -> bytes:
    """Return a log of these entries, each with its key and after the one before it."""
    after, data = "", []
    for seq, entry in enumerate(entries, start=1):
        after, text = written(replace(entry, seq=seq, after=after))
        data.append(text)
    return b"".join(data)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=_DIGITS // 2).hexdigest()
