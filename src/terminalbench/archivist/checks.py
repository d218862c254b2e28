"""Whether a lesson can be one, and what becomes of it after the check for leaks. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from terminalbench.archivist.leaks import Leak, TaskTexts
from terminalbench.errors import UserError
from terminalbench.records.lesson import Lesson, LessonScope, LessonState
from terminalbench.text.foreign import flat

LONGEST_TEXT = 1200
"""Characters of a lesson: about 300 tokens, of the 400 that all lessons of a prompt may have."""


@dataclass(frozen=True)
class LessonVerdict:
    """The state that a lesson has after its check, and why."""

    state: LessonState
    reason: str | None = None


def judge(lesson: Lesson, leaks: Sequence[Leak], tasks: Sequence[TaskTexts]) -> LessonVerdict:
    """Return what becomes of a lesson in which these leaks were found, compared with the texts of these tasks."""
    if leaks:
        return LessonVerdict(LessonState.QUARANTINED, quarantine_reason(leaks))
    if poison := next((task.poison for task in tasks if task.poison is not None), None):
        return LessonVerdict(LessonState.CANDIDATE, f'{poison.what}: "{flat(poison.found, 60)}"; to use it, approve it')
    unread = sorted({task.id for task in lesson.source_tasks} - {task.id for task in tasks if task.complete})
    if unread:
        return LessonVerdict(LessonState.CANDIDATE, f"not compared with the files of {', '.join(unread)}")
    return LessonVerdict(LessonState.ACTIVE)


def quarantine_reason(leaks: Iterable[Leak]) -> str:
    """Return why a lesson is quarantined, and what puts it into use all the same."""
    return f"{'; '.join(map(str, leaks))}; to use it anyway: tbench memory approve"


def check_fields(lesson: Lesson) -> None:
    """Refuse a lesson that says nothing, says too much, or whose scope, tags or importance cannot be."""
    if not (lesson.do or "").strip() and not (lesson.avoid or "").strip():
        raise UserError("the lesson is empty: give --do, --avoid, or both")
    if (length := len(lesson.do or "") + len(lesson.avoid or "")) > LONGEST_TEXT:
        raise UserError(
            f"the text has {length} characters; the limit is {LONGEST_TEXT}",
            hint="shorten it: a lesson says one thing",
        )
    if (lesson.scope is LessonScope.GLOBAL) != (lesson.scope_value is None):
        wanted = (
            "must not have a value" if lesson.scope is LessonScope.GLOBAL else f"needs a value: {lesson.scope}:NAME"
        )
        raise UserError(f"the scope {lesson.scope} {wanted}")
    if not 0 <= lesson.importance <= 1:
        raise UserError(f"importance must be between 0 and 1, not {lesson.importance}")
    wrong = [tag for tag in lesson.tags if not tag or tag != tag.strip().lower() or " " in tag]
    if wrong:
        raise UserError(f'"{wrong[0]}" is not a tag', hint="a tag is one word in lower case")
