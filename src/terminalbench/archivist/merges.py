"""What a lesson has after it took up others, or the same was learned again. Pure."""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import UNSET

from terminalbench.archivist.checks import quarantine_reason
from terminalbench.archivist.entries import LessonChanges
from terminalbench.archivist.leaks import TaskTexts, find_leaks
from terminalbench.records.lesson import Lesson, LessonState

MOST_EVIDENCE = 20
"""What a lesson that is learned again and again keeps."""


def union(kept: Lesson, others: Iterable[Lesson]) -> LessonChanges:
    """What a lesson has after it took up others. Its text, state and measured utility stay its own."""
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
    """What a lesson has after the same was learned again.

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
        reason = f"tried again: {', '.join(taught[:3])} taught it too"
        changes = msgspec.structs.replace(changes, state=LessonState.ACTIVE, reason=reason)
    return changes


def _each_once[T](found: Iterable[T]) -> list[T]:
    return list({msgspec.json.encode(one): one for one in found}.values())
