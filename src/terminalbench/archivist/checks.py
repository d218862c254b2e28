"""Whether a lesson can be one, its state after the check for leaks, and the texts of tasks that it may not repeat."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec.structs import replace as changed

from terminalbench.archivist.leaks import Leak, TaskTexts
from terminalbench.errors import UserError
from terminalbench.experiments.datasets import TaskSource
from terminalbench.files import read_plain
from terminalbench.records.lesson import Lesson, LessonScope, LessonState
from terminalbench.records.trial import TaskRef
from terminalbench.starter import TASKS_DIR
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


_LARGEST = 512 << 10
_MOST_FILES = 400


def read_task(folder: Path, task: str | None = None) -> TaskTexts:
    """Return what stands in the folder of a task, which is called as its folder unless told."""
    if not (folder / "task.toml").is_file():
        raise UserError("is not the folder of a task", where=str(folder), hint="name a folder with a task.toml")
    instructions = [_text(file) for file in (folder / "instruction.md", *sorted(folder.glob("steps/*/instruction.md")))]
    return TaskTexts(
        id=task or folder.resolve().name,
        instruction="\n".join(filter(None, instructions)),
        tests=tuple(_texts(folder, "tests")),
        solution=tuple(_texts(folder, "solution")),
    )


def task_texts(folder: str | None, task: str, read: Sequence[str] = (), said: Sequence[str] = ()) -> TaskTexts:
    """The same with what agents `read` and `said` at the task; incomplete where the folder is not known, or is gone."""
    known = folder is not None and (Path(folder) / "task.toml").is_file()
    found = read_task(Path(folder), task) if folder is not None and known else TaskTexts(task, complete=False)
    return replace(found, read=tuple(dict.fromkeys(read)), said=tuple(dict.fromkeys(said)))


def source_texts(task: TaskRef, project: Path) -> TaskTexts:
    """Return what stands in the folder of a task that a lesson names; incomplete where it is not found on this
    machine."""
    return task_texts(str(_folder(task, project)), task.id)


def task_in(folder: Path, family: str | None = None) -> TaskRef:
    """The task in a folder as a trial of it is known: of the family that was told, or that its task.toml names."""
    place = folder.resolve()
    return TaskRef(place.name, str(place.parent), family or TaskSource({}, True, place).own_family())


def with_families(tasks: Sequence[TaskRef], project: Path) -> list[TaskRef]:
    """The tasks that a lesson names, each with its family where that is not told and its folder is on this machine."""
    return [task if task.family else changed(task, family=task_in(_folder(task, project)).family) for task in tasks]


def _folder(task: TaskRef, project: Path) -> Path:
    return (TASKS_DIR if task.dataset == "starter" else project / task.dataset) / task.id


def _texts(folder: Path, part: str) -> Iterator[str]:
    places = (folder / part, *sorted(folder.glob(f"steps/*/{part}")))
    files = [file for place in places for file in sorted(place.rglob("*"))][:_MOST_FILES]
    yield from filter(None, map(_text, files))


def _text(file: Path) -> str | None:
    """A file as text; None of what is no plain file, large or not text."""
    data = read_plain(file, _LARGEST)
    try:
        return data.decode() if data is not None and b"\0" not in data else None
    except UnicodeDecodeError:
        return None
