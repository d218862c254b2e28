"""What memory holds for the tasks of a batch, before it is planned: what `harbor/agents/lessons.py` shows of it."""

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from terminalbench.archivist.checks import read_task
from terminalbench.archivist.retrieval import (
    RankedLesson,
    RetrievalMode,
    RetrievalPolicy,
    Situation,
    own,
    retrieve,
)
from terminalbench.archivist.store import open_store
from terminalbench.archivist.utility import chance_shown
from terminalbench.experiments.lessons import EligibleLesson, LessonReader, Snapshot, task_key
from terminalbench.experiments.plan import PlannedTask
from terminalbench.experiments.tables import LessonsTable
from terminalbench.files import read_plain
from terminalbench.records.trial import TaskRef

_LARGEST = 1 << 20


def take_snapshot(
    root: Path,
    lessons: LessonsTable,
    tasks: Sequence[PlannedTask],
    reader: LessonReader = LessonReader(),  # noqa: B008  frozen
    known: Sequence[TaskRef] = (),
    seed: str | None = None,
) -> Snapshot:
    """The lessons of a project's memory for each task; of an empty memory, or of none, no lessons.

    `known` are all tasks of the experiment: also from one that is not planned now, a lesson may come. `seed` is that of
    what is left to chance: which of the lessons that are not known yet a task gets.
    """
    policy = RetrievalPolicy(RetrievalMode(lessons.mode), lessons.k, lessons.budget)
    families: dict[str | None, set[str]] = {}
    for ref in (*known, *(task.ref for task in tasks)):
        families.setdefault(ref.family, set()).add(ref.id)
    families.pop(None, None)
    with open_store(root / ".terminalbench") as store:
        found, masked = {}, 0
        for task in tasks:
            relatives = frozenset(families.get(task.ref.family, ()))
            situation = replace(situation_of(task), **reader._asdict(), relatives=relatives)
            retrieved = retrieve(store.connection, situation, policy, seed)
            eligible = [eligible_lesson(one, situation, lessons.withhold) for one in retrieved.lessons]
            found[task_key(task.label, task.ref.id)], masked = eligible, masked + retrieved.masked
    return Snapshot(
        mode=lessons.mode,
        k=lessons.k,
        budget=lessons.budget,
        withhold=lessons.withhold,
        tasks=found,
        masked=masked,
    )


def eligible_lesson(one: RankedLesson, situation: Situation, withhold: float) -> EligibleLesson:
    """Return a lesson as the snapshot has it, with the probability of showing it: by its effect where that is known."""
    belief = one.belief
    likely = round(chance_shown(belief, withhold), 4) if belief is not None and belief.n else None
    return EligibleLesson(one.lesson.id, one.lesson.text, own(one.lesson, situation), likely)


def situation_of(task: PlannedTask) -> Situation:
    """Return what is known of a planned task. Of one that lies in no folder of this machine, the words of its id
    alone."""
    folder = task.own_folder
    if folder is None or not (Path(folder) / "task.toml").is_file():
        return Situation(task.ref, task.ref.id.replace("-", " ").replace("_", " "), suite=task.ref.dataset)
    return situation_in(Path(folder), task.ref)


def situation_in(folder: Path, task: TaskRef) -> Situation:
    """Return what is known of a task that lies in a folder."""
    instruction, about = read_task(folder).instruction, _about(folder / "task.toml")
    return Situation(task, instruction, _tags(about), suite=task.dataset, repository=_repository(about))


def _about(file: Path) -> dict[str, Any]:
    """A task's own description; empty where it cannot be read: the check before the run says what is wrong with it."""
    try:
        return tomllib.loads((read_plain(file, _LARGEST) or b"").decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return {}


def _tags(about: dict[str, Any]) -> tuple[str, ...]:
    """Its keywords and tags, as lessons have them."""
    task, metadata = _table(about.get("task")), _table(about.get("metadata"))
    named = [words for words in (task.get("keywords"), metadata.get("tags")) if isinstance(words, list)]
    found = (str(word).strip().lower().replace(" ", "-") for words in named for word in words)
    return tuple(dict.fromkeys(filter(None, found)))


def _repository(about: dict[str, Any]) -> str | None:
    repository = _table(about.get("metadata")).get("repo")
    return repository if isinstance(repository, str) else None


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
