"""What is done with lessons: add, edit, merge, retire, approve. Each is an entry of the log; none rewrites them all.

A lesson that is added or whose text is changed is checked for leaks. One with findings is quarantined; one that could
not be compared with the files of every task it comes from stays a candidate. Neither is shown to an agent until a
person approves it, and that is an entry too.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET

from terminalbench.archivist.checks import (
    LessonVerdict,
    check_fields,
    judge,
    quarantine_reason,
    source_texts,
    with_families,
)
from terminalbench.archivist.entries import BY_EFFECT, LessonChanges, MemoryEntry, Operation, Trigger
from terminalbench.archivist.leaks import Leak, TaskTexts, find_leaks
from terminalbench.archivist.store import Store
from terminalbench.archivist.tables import find_lesson, lesson_of, near_duplicate
from terminalbench.decode import decode
from terminalbench.errors import UserError, did_you_mean
from terminalbench.records.lesson import Lesson, LessonState
from terminalbench.records.trial import TaskRef

MOST_EVIDENCE = 20
"""What a lesson that is learned again and again keeps."""


def union(kept: Lesson, others: Iterable[Lesson]) -> LessonChanges:
    """Return what a lesson has after it took up others. Its text, state and measured utility stay its own."""
    all_of = [kept, *others]
    return LessonChanges(
        tags=list(dict.fromkeys(tag for lesson in all_of for tag in lesson.tags)),
        importance=max(lesson.importance for lesson in all_of),
        evidence=_each_once(found for lesson in all_of for found in lesson.evidence),
        source_tasks=_each_once(task for lesson in all_of for task in lesson.source_tasks),
    )


def taken_up(
    known: Lesson, draft: Lesson, tasks: Sequence[TaskTexts], *, usable: bool, again: bool = False
) -> LessonChanges:
    """Return what a lesson has after the same was learned again.

    What is learned each night adds evidence up to a limit; its tasks are all kept, for the mask. A draft that is not
    `usable`, neither by itself nor on a person's word, changes neither tags nor importance, by which lessons are found.
    One in use that holds a part of a task which it comes from only now is quarantined. `again`: one that was retired by
    its effect is tried again where a task that it did not come from teaches it.
    """
    changes = union(known, [draft])
    evidence = changes.evidence if changes.evidence is not UNSET else []
    changes = msgspec.structs.replace(changes, evidence=evidence[: max(MOST_EVIDENCE, len(known.evidence))])
    if not usable:
        changes = msgspec.structs.replace(changes, tags=UNSET, importance=UNSET)
    before = {task.id for task in known.source_tasks}
    leaks = find_leaks(known.text, [task for task in tasks if task.id not in before])
    general = set(find_leaks(known.text))
    if known.state is LessonState.ACTIVE and (new := [leak for leak in leaks if leak not in general]):
        changes = msgspec.structs.replace(changes, state=LessonState.QUARANTINED, reason=quarantine_reason(new))
    elif again and not leaks and (taught := sorted({task.id for task in draft.source_tasks} - before)):
        reason = f"tried again: {', '.join(taught[:3])} led to the same lesson"
        changes = msgspec.structs.replace(changes, state=LessonState.ACTIVE, reason=reason)
    return changes


def _each_once[T](found: Iterable[T]) -> list[T]:
    return list({msgspec.json.encode(one): one for one in found}.values())


MOST_PER_EPISODE = 3


@dataclass(frozen=True)
class AddedLesson:
    """A lesson as it is in memory now; `merged` where one that says the same was there and took it up."""

    lesson: Lesson
    merged: bool = False
    leaks: tuple[Leak, ...] = ()


def add(store: Store, draft: Lesson, *, by: str, tasks: Sequence[TaskTexts] = ()) -> AddedLesson:
    """Add a lesson of a person's. `draft` has no id yet; `tasks` are the texts that it is compared with.

    One that says the same as a lesson in use is merged into it; where that one is retired or quarantined, an error.
    """
    added = _add(store, draft, by=by, tasks=tasks)
    assert added is not None  # only an episode has a limit
    return added


def add_imported(store: Store, draft: Lesson, *, by: str) -> AddedLesson:
    """Add a lesson from elsewhere: a candidate at best, until a person approves it here."""
    added = _add(store, draft, by=by, held="imported; approve it to use it here")
    assert added is not None  # only an episode has a limit
    return added


@dataclass(frozen=True)
class Origin:
    """The episode that lessons come from, what made us look at it, and why in words."""

    episode: str
    trigger: Trigger
    why: str = ""


def add_from_episode(
    store: Store, drafts: Iterable[Lesson], origin: Origin, *, by: str, tasks: Sequence[TaskTexts] = ()
) -> list[AddedLesson]:
    """Add what was learned from one episode: `MOST_PER_EPISODE` lessons in all, however often it is asked."""
    found = [_add(store, draft, by=by, tasks=tasks, origin=origin) for draft in drafts]
    return [added for added in found if added is not None]


@dataclass(frozen=True)
class OfEpisode:
    """What stands in the log of an episode: its lessons as they are now, and what made us look at it."""

    added: list[AddedLesson]
    trigger: Trigger
    why: str


def of_episode(store: Store, episode: str) -> OfEpisode | None:
    """Return what was learned from an episode already; None when nothing was."""
    query = "SELECT record FROM entries WHERE episode = ? ORDER BY seq"
    rows = store.connection.execute(query, (episode,)).fetchall()
    entries = [decode(row["record"], MemoryEntry) for row in rows]
    if not entries:
        return None
    added = [AddedLesson(find(store, entry.id), merged=entry.op is Operation.MERGE) for entry in entries]
    why = next((entry.reason for entry in entries if entry.op is Operation.ADD), None)
    return OfEpisode(added, entries[0].trigger or Trigger.ON_DEMAND, why or "")


def _add(
    store: Store,
    draft: Lesson,
    *,
    by: str,
    tasks: Sequence[TaskTexts] = (),
    origin: Origin | None = None,
    held: str | None = None,
) -> AddedLesson | None:
    """Add a lesson of an episode (`origin`), from elsewhere (`held` says why it waits), or else of a person's."""
    check_fields(draft)
    personal = origin is None and held is None
    draft = msgspec.structs.replace(draft, source_tasks=with_families(draft.source_tasks, store.place.folder.parent))
    leaks = tuple(find_leaks(draft.text, tasks))
    found = judge(draft, leaks, tasks)
    if held is not None and found.state is LessonState.ACTIVE:
        found = LessonVerdict(LessonState.CANDIDATE, held)
    made: list[AddedLesson] = []

    def make() -> list[MemoryEntry]:
        made.clear()
        if origin is not None and _of_episode(store, origin.episode) >= MOST_PER_EPISODE:
            return []
        came: dict[str, Any] = {"episode": origin.episode, "trigger": origin.trigger} if origin is not None else {}
        known = near_duplicate(store.connection, draft)
        if known is not None:
            if personal:
                _refuse_out_of_use(known)
            usable = found.state is LessonState.ACTIVE or personal
            again = origin is not None and usable and is_retired_by_effect(store, known)
            changes = taken_up(known, draft, tasks, usable=usable, again=again)
            made.append(AddedLesson(changes.of(known), merged=True))
            reason = "the same was learned again"
            return [MemoryEntry(op=Operation.MERGE, id=known.id, by=by, reason=reason, changes=changes, **came)]
        written = draft.written_from
        if origin is not None and written is None:
            written = draft.source_tasks
        lesson = msgspec.structs.replace(
            draft,
            written_from=written,
            id=_new_id(store),
            state=found.state,
            reason=found.reason,
            author=draft.author or by,
        )
        made.append(AddedLesson(lesson, leaks=leaks))
        why = (origin.why or None) if origin is not None else None
        return [MemoryEntry(op=Operation.ADD, id=lesson.id, by=by, lesson=lesson, reason=why, **came)]

    store.write(make)
    return made[0] if made else None


def _refuse_out_of_use(known: Lesson) -> None:
    if known.state in (LessonState.RETIRED, LessonState.QUARANTINED):
        why = f" ({known.reason})" if known.reason else ""
        hint = f"tbench memory approve {known.id} puts it back into use"
        raise UserError(f"lesson {known.id} says the same and is {known.state}{why}", hint=hint)


def edit(
    store: Store,
    name: str,
    changes: LessonChanges,
    *,
    by: str,
    reason: str | None = None,
    tasks: Sequence[TaskTexts] = (),
    sources: Sequence[TaskRef] = (),
) -> Lesson:
    """Change fields of a lesson; `sources` are tasks that it comes from too, and `tasks` the texts of some.

    Where its text or its tasks change it is checked again, with all of them. A leak puts it into
    quarantine; an active one becomes a candidate where the files of such a task are not found. What was measured of
    another text is no effect of the new one (`effects.py`); it stays in the log.
    """

    def make() -> list[MemoryEntry]:
        before = find(store, name)
        named = {(task.id, task.family) for task in before.source_tasks}
        new = [task for task in sources if (task.id, task.family) not in named]
        made = msgspec.structs.replace(changes, source_tasks=[*before.source_tasks, *new]) if new else changes
        if new and before.written_from is not None:
            made = msgspec.structs.replace(made, written_from=[*before.written_from, *new])
        after = made.of(before)
        check_fields(after)
        if after.text != before.text:
            made = msgspec.structs.replace(made, utility=None, effects=[])
            if before.written_from is not None:  # nobody knows where the new words come from
                made = msgspec.structs.replace(made, written_from=after.source_tasks)
        if new or after.text != before.text:
            given = {task.id for task in tasks}
            missing = (task for task in after.source_tasks if task.id not in given)
            known = [*tasks, *(source_texts(task, store.place.folder.parent) for task in missing)]
            found = judge(after, find_leaks(after.text, known), known)
            if found.state is LessonState.QUARANTINED or LessonState.ACTIVE is before.state is not found.state:
                made = msgspec.structs.replace(made, state=found.state, reason=found.reason)
        return [MemoryEntry(op=Operation.EDIT, id=before.id, by=by, reason=reason, changes=made)]

    (entry,) = store.write(make)
    return find(store, entry.id)


def approve(store: Store, name: str, *, by: str, reason: str | None = None) -> Lesson:
    """Put a lesson into use on a person's word, whatever the check found in it."""

    def make() -> list[MemoryEntry]:
        before = find(store, name)
        if before.superseded_by is not None:
            raise UserError(
                f"{before.id} was merged into {before.superseded_by}", hint=f"approve {before.superseded_by}"
            )
        if before.state is LessonState.ACTIVE:
            raise UserError(f"{before.id} is already active")
        said = f"approved by {by}" + (f": {reason}" if reason else "")
        changes = LessonChanges(state=LessonState.ACTIVE, reason=said)
        return [MemoryEntry(op=Operation.EDIT, id=before.id, by=by, reason=said, changes=changes)]

    (entry,) = store.write(make)
    return find(store, entry.id)


def retire(store: Store, name: str, *, by: str, reason: str) -> Lesson:
    """Take a lesson out of use. It stays in memory, so that the same is not learned again."""
    _check_reason(reason)

    def make() -> list[MemoryEntry]:
        before = find(store, name)
        if before.state is LessonState.RETIRED:
            raise UserError(f"{before.id} is already retired", hint=before.reason)
        return [MemoryEntry(op=Operation.RETIRE, id=before.id, by=by, reason=reason)]

    (entry,) = store.write(make)
    return find(store, entry.id)


def merge(store: Store, into: str, names: Sequence[str], *, by: str, reason: str) -> Lesson:
    """Let one lesson take up others: it has their evidence, tags and source tasks too, and they are retired."""
    _check_reason(reason)

    def make() -> list[MemoryEntry]:
        kept = find(store, into)
        others = list({lesson.id: lesson for lesson in (find(store, name) for name in names)}.values())
        if any(lesson.id == kept.id for lesson in others):
            raise UserError("a lesson cannot be merged into itself", where=kept.id)
        absorbed, changes = [lesson.id for lesson in others], union(kept, others)
        return [MemoryEntry(op=Operation.MERGE, id=kept.id, by=by, reason=reason, changes=changes, absorbed=absorbed)]

    (entry,) = store.write(make)
    return find(store, entry.id)


def _check_reason(reason: str) -> None:
    if not reason.strip():
        raise UserError("the reason is empty", hint="give a reason, which is recorded in the log")


def find(store: Store, name: str) -> Lesson:
    """The lesson of that id, or whose id alone begins so; an error names the closest."""
    exact = find_lesson(store.connection, name)
    if exact is not None:
        return exact
    query = "SELECT id, record FROM lessons WHERE substr(id, 1, ?) = ? ORDER BY id LIMIT 4"
    rows = store.connection.execute(query, (len(name), name)).fetchall() if name else []
    if len(rows) == 1:
        return lesson_of(rows[0]["record"])
    if rows:
        shown = [row["id"] for row in rows[:3]] + (["..."] if len(rows) > 3 else [])
        raise UserError(f'"{name}" matches several lessons: {", ".join(shown)}')
    ids = [row[0] for row in store.connection.execute("SELECT id FROM lessons ORDER BY number DESC LIMIT 10000")]
    hint = did_you_mean(name, ids, limit=5) if ids else "memory is empty; tbench memory add writes one"
    raise UserError(f'no lesson is called "{name}"', hint=hint)


def is_retired_by_effect(store: Store, lesson: Lesson) -> bool:
    """Return whether a lesson is retired, and was by its measured effect."""
    query = "SELECT record FROM entries WHERE seq IN (SELECT seq FROM entry_lessons WHERE lesson = ?) ORDER BY seq DESC"
    entries = (decode(row[0], MemoryEntry) for row in store.connection.execute(query, (lesson.id,)))
    last = next((one for one in entries if one.op is Operation.RETIRE), None)
    return lesson.state is LessonState.RETIRED and last is not None and last.by == BY_EFFECT


def _of_episode(store: Store, episode: str) -> int:
    return store.connection.execute("SELECT count(*) FROM entries WHERE episode = ?", (episode,)).fetchone()[0]


def _new_id(store: Store) -> str:
    while True:
        name = f"l-{os.urandom(5).hex()}"
        if find_lesson(store.connection, name) is None:
            return name
