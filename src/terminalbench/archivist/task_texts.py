"""The texts of a task's folder that no lesson may repeat: its instruction, tests and solution, those of steps too."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec.structs import replace as changed

from terminalbench.archivist.leaks import TaskTexts
from terminalbench.errors import UserError
from terminalbench.experiments.datasets import TaskSource
from terminalbench.files import read_plain
from terminalbench.records.trial import TaskRef
from terminalbench.starter import TASKS_DIR

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
