"""The operations on lessons as entries of the log, and what each makes of the lessons it is about. Pure."""

from collections.abc import Callable
from enum import StrEnum

import msgspec
from msgspec import UNSET, UnsetType

from terminalbench.archivist.triggers import Trigger
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
    its line, which begins with it (`log.py`): an entry that was changed is found by that.
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
