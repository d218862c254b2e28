"""What a variant must not hold: parts of the tasks that it is measured on, of their verification, or of the split.

Every text of a change is compared with every task of the environment, the held-out ones too: that is no look, for what
is told is only what the change itself says, never which task it was found in.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import PurePath
from typing import Any, NamedTuple

import msgspec

from terminalbench.archivist.checks import task_texts
from terminalbench.archivist.leaks import LeakKind, TaskTexts, find_leaks
from terminalbench.archivist.words import words
from terminalbench.errors import UserError
from terminalbench.experiments.experiment import Task
from terminalbench.trainer.environments import Environment

_WHY = {  # without the name of the task; an order to a model has none
    LeakKind.TASK: "the id of a task",
    LeakKind.TEST: "a part of a task's tests",
    LeakKind.VALUE: "a value that a task's tests expect",
    LeakKind.SOLUTION: "a part of a task's solution",
    LeakKind.VERIFIER: "a part of the verification",
    LeakKind.INSTRUCTION: "a copy of a task's instruction",
    LeakKind.COPIED: "a copy of what an agent read",
}
_KEPT_APART = re.compile(
    r"\.terminalbench\b|\bsplits\.jsonl\b|\blooks\.jsonl\b|\bhold-?out\b|\bheld[- ]out (?:tasks?|part|set|split)\b"
    r"|\b(?:is|are|be|was|were) held[- ]out\b|\b(?:dev|train) (?:part|tasks?)\b|\bdev (?:set|split)\b",
    re.IGNORECASE,
)
_ROW = 7
"""So many words in a row of a task's instruction are a copy, common words counted, where `_SAYING` of them are not."""
_SAYING = 4
_WORD = re.compile(r"[\w'-]+")


class _TaskPlace(NamedTuple):
    """A task, the folder of its files, and its family."""

    id: str
    folder: str | None
    family: str | None


def refuse_leaks(environment: Environment, change: Any, at: str) -> None:
    """Raise UserError for a change that holds what it must not, with what that is."""
    places = _places(environment.tasks)
    held = msgspec.to_builtins(change)
    held.pop("reason", None)  # no agent reads it; `refuse_reason` checks it
    for name, value in held.items():
        for where, text in _strings(value, f"{at}.{name}"):
            if found := _found(text, str(environment.root), places):
                hint = "write it so that it fits any task, or leave it out"
                raise UserError(f"contains {found}", where=where, hint=hint)


def refuse_reason(environment: Environment, train: Sequence[Task], change: Any, at: str) -> None:
    """Raise UserError for a change whose reason names a task that nothing may be made from: one that is not on train.

    An evolver reads the reasons of earlier changes.
    """
    open_tasks = {(task.dataset, task.id) for task in train}
    others = [TaskTexts(task.id) for task in environment.tasks if (task.dataset, task.id) not in open_tasks]
    leak = next((leak for leak in find_leaks(change.reason, others) if leak.kind is LeakKind.TASK), None)
    if leak is not None:
        what = f'names a task that is not a train task: "{leak.found}"'
        raise UserError(what, where=f"{at}.reason", hint="write it so that it fits any task")


def _places(tasks: Sequence[Task]) -> tuple[_TaskPlace, ...]:
    return tuple(
        _TaskPlace(task.id, str(task.source.folder) if task.source.folder else None, task.family) for task in tasks
    )


def _strings(value: Any, at: str) -> Iterator[tuple[str, str]]:
    """Every text in a part of a change, with its place; what a person or a model may name is a text too."""
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, dict):
        for name, held in value.items():
            yield f"{at}.{name}", name
            yield from _strings(held, f"{at}.{name}")
    elif isinstance(value, list):
        for index, held in enumerate(value):
            yield from _strings(held, f"{at}[{index}]")


@lru_cache(maxsize=1024)
def _found(text: str, root: str, places: tuple[_TaskPlace, ...]) -> str | None:
    """Return what of a text is a leak, and why; None where it is clean."""
    if match := _KEPT_APART.search(text):
        return f'a detail of how tasks are split: "{match.group()}"'
    if match := _paths(root, places).search(text):
        return f'a path to the tasks or the project: "{match.group()}"'
    if (families := _families(places)) is not None and (match := families.search(text)):
        return f'the name of a task family: "{match.group()}"'
    if leak := next(iter(find_leaks(text, _texts(places))), None):
        return f'{_WHY.get(leak.kind, leak.why)}: "{leak.found}"'
    row = next((row for row in _rows(text) if row in _instruction_rows(places)), None)
    return f'{_WHY[LeakKind.INSTRUCTION]}: "{" ".join(row)}"' if row is not None else None


@lru_cache(maxsize=4)
def _texts(places: tuple[_TaskPlace, ...]) -> tuple[TaskTexts, ...]:
    return tuple(task_texts(place.folder, place.id) for place in places)


@lru_cache(maxsize=4)
def _paths(root: str, places: tuple[_TaskPlace, ...]) -> re.Pattern[str]:
    """Paths of the project, of the folders that hold tasks, and ways to a task relative to those folders."""
    folders = {PurePath(place.folder).parent for place in places if place.folder is not None}
    whole = {str(folder) for folder in (PurePath(root), *folders) if len(folder.parts) > 2}
    begins = sorted({re.escape(re.split(r"[\W_]", place.id)[0]) for place in places})
    ways = [rf"(?<![\w-]){re.escape(folder.name)}/(?:{'|'.join(begins)})" for folder in folders if folder.name]
    return re.compile("|".join([*(rf"{re.escape(one)}(?![\w-])" for one in sorted(whole)), *sorted(ways)]) or r"(?!)")


@lru_cache(maxsize=4)
def _families(places: tuple[_TaskPlace, ...]) -> re.Pattern[str] | None:
    """The families by name, where they are named as such: a family may be called by a word of every day."""
    names = {r"[\W_]".join(map(re.escape, re.findall(r"[^\W_]+", place.family))) for place in places if place.family}
    if not names:
        return None
    one = f"(?:{'|'.join(sorted(names))})"
    return re.compile(rf"\b{one} (?:tasks?|family)\b|\bfamily:? {one}\b", re.IGNORECASE)


@lru_cache(maxsize=4)
def _instruction_rows(places: tuple[_TaskPlace, ...]) -> frozenset[tuple[str, ...]]:
    return frozenset(row for task in _texts(places) for row in _rows(task.instruction))


def _rows(text: str) -> Iterator[tuple[str, ...]]:
    """Each `_ROW` words in a row of a text that say something."""
    found = [word.lower() for word in _WORD.findall(text)]
    for at in range(len(found) - _ROW + 1):
        row = tuple(found[at : at + _ROW])
        if len(words(" ".join(row))) >= _SAYING:
            yield row
