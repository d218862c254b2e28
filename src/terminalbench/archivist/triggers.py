"""What makes us look back at trials: a batch that has ended, and what in it deserves a closer look. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from terminalbench.records.trial import TaskRef
from terminalbench.text.numbers import plural, some

LEAST_TRIALS = 2
"""So many trials must have failed in the same way before something is made of it."""
_ALWAYS_PASSED = 3
"""A task that passed so often before, and never failed, is not expected to fail."""
_ALWAYS_FAILED = 2
"""A task that failed so often before, and never passed, was not expected to pass."""


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


class TriggerCell(NamedTuple):
    """The trials of one task by one profile."""

    profile: str
    task: TaskRef


type Verdicts = Mapping[TriggerCell, Sequence[bool]]
"""Whether each measured trial passed."""


@dataclass(frozen=True)
class FiredTrigger:
    """A trigger that fired, why in words, and the tasks to look at first."""

    trigger: Trigger
    why: str
    tasks: tuple[TaskRef, ...] = ()


def fired(
    now: Verdicts, before: Verdicts, signatures: Iterable[str] = (), fell: Sequence[str] = ()
) -> list[FiredTrigger]:
    """Return what fires after a batch, the most telling first; `batch` always does.

    `signatures` are those of its failed trials, `fell` the tasks that a night's regression alert names.
    """
    found: list[FiredTrigger] = []
    lost = [cell for cell, passed in now.items() if _lost(passed, before.get(cell, ()))]
    lost += [cell for cell in now if cell.task.id in fell and cell not in lost]
    if lost:
        found.append(_about(Trigger.REGRESSION, "passed before and failed now", lost))
    won = [cell for cell, passed in now.items() if _won(passed, before.get(cell, ()))]
    if won:
        found.append(_about(Trigger.FIRST_SUCCESS, "failed before and passed now", won))
    often = [(sign, n) for sign, n in Counter(signatures).most_common() if n >= LEAST_TRIALS]
    if often:
        found.append(
            FiredTrigger(Trigger.REPEATED_FAILURE, f"{plural(often[0][1], 'trial')} failed with the same signature")
        )
    return [*found, FiredTrigger(Trigger.BATCH, "a batch has ended")]


def _lost(now: Sequence[bool], before: Sequence[bool]) -> bool:
    return bool(now) and not any(now) and len(before) >= _ALWAYS_PASSED and all(before)


def _won(now: Sequence[bool], before: Sequence[bool]) -> bool:
    return any(now) and len(before) >= _ALWAYS_FAILED and not any(before)


def _about(trigger: Trigger, what: str, cells: Sequence[TriggerCell]) -> FiredTrigger:
    tasks = tuple(dict.fromkeys(cell.task for cell in cells))
    return FiredTrigger(trigger, f"{what}: {some([task.id for task in tasks], 3)}", tasks)
