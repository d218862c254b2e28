"""What a variant must not hold: parts of the tasks that it is measured on, of their verification, or of the split.

Every text of a change is compared with every task of the environment, the held-out ones too: that is no look, for what
is told is only what the change itself says, never which task it was found in.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

from terminalbench.archivist.leaks import LeakKind, TaskTexts, find_leaks
from terminalbench.archivist.task_texts import task_texts
from terminalbench.errors import UserError
from terminalbench.trainer.environments import Environment

_WHY = {
    LeakKind.TASK: "the id of a task",
    LeakKind.TEST: "a part of a task's tests",
    LeakKind.VALUE: "a value that a task's tests expect",
    LeakKind.SOLUTION: "a part of a task's solution",
    LeakKind.VERIFIER: "a part of the verification",
    LeakKind.INSTRUCTION: "a copy of a task's instruction",
    LeakKind.INJECTION: "an order to a model about its conversation",
    LeakKind.COPIED: "a copy of what an agent read",
}
_KEPT_APART = re.compile(
    r"\.terminalbench\b|\bsplits\.jsonl\b|\blooks\.jsonl\b|\bhold-?out\b|\bheld[- ]out (?:tasks?|part|set)\b",
    re.IGNORECASE,
)


def refuse_leaks(environment: Environment, change: Any, at: str) -> None:
    """Raise UserError for a change that holds what it must not, with what that is."""
    places = tuple((task.id, str(task.source.folder) if task.source.folder else None) for task in environment.tasks)
    held = msgspec.to_builtins(change)
    held.pop("reason", None)  # it is told to people, and to no agent
    for name, value in held.items():
        for where, text in _strings(value, f"{at}.{name}"):
            if found := _found(text, places):
                hint = "say it for any task, or leave it out"
                raise UserError(f"holds {found}", where=where, hint=hint)


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
def _found(text: str, places: tuple[tuple[str, str | None], ...]) -> str | None:
    """What of a text is a leak, and why; None where it is clean."""
    if match := _KEPT_APART.search(text):
        return f'a part of how tasks are kept apart: "{match.group()}"'
    if folder := next((folder for _, folder in places if folder is not None and folder in text), None):
        return f'a path into the folder of a task: "{folder.rsplit("/", 1)[0]}/..."'
    leak = next(iter(find_leaks(text, _texts(places))), None)
    return f'{_WHY[leak.kind]}: "{leak.found}"' if leak is not None else None


@lru_cache(maxsize=4)
def _texts(places: tuple[tuple[str, str | None], ...]) -> tuple[TaskTexts, ...]:
    return tuple(task_texts(folder, name) for name, folder in places)
