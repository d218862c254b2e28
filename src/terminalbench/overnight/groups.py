"""Pass rates by category and by difficulty of the tasks, as the suite says them. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from math import fsum

import msgspec

from terminalbench.overnight.iteration_results import ProfileResult, TaskResult
from terminalbench.records.counts import Counts
from terminalbench.records.trial import TaskRef

_BY_DIFFICULTY = ("easy", "medium", "hard", "expert")


class Grouping(StrEnum):
    """By what tasks are put together."""

    CATEGORY = "category"
    DIFFICULTY = "difficulty"


class GroupRate(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks of one kind over the night, by one profile; `name` is None for those of which the suite says nothing.

    `pass_rate` is the mean over tasks of passed of measured, `coverage` the measured share of the planned trials.
    """

    by: Grouping
    name: str | None
    tasks: int
    total: int
    passed: int
    measured: int
    pass_rate: float | None
    coverage: float | None


def group_rates(found: Sequence[ProfileResult], counts: Mapping[TaskRef, Counts]) -> list[GroupRate]:
    """Return what a profile did in its iterations `found`, kind by kind; none where the suite names no kinds.

    `counts` are the attempts that go into rates: those at tasks that stayed the same.
    """
    tasks = [task for one in found for task in one.tasks]
    return [
        *_groups(Grouping.CATEGORY, tasks, counts, lambda task: task.category),
        *_groups(Grouping.DIFFICULTY, tasks, counts, lambda task: task.difficulty),
    ]


def _groups(
    by: Grouping,
    tasks: Iterable[TaskResult],
    counts: Mapping[TaskRef, Counts],
    kind: Callable[[TaskResult], str | None],
) -> list[GroupRate]:
    kinds: dict[str | None, list[TaskResult]] = {}
    for task in tasks:
        kinds.setdefault(kind(task), []).append(task)
    named = sorted(kinds, key=_place)
    return [_rate(by, name, kinds[name], counts) for name in named] if named != [None] else []


def _place(name: str | None) -> tuple[int, str]:
    """Difficulties from easy to expert, then the alphabet, then what has no name."""
    if name is None:
        return len(_BY_DIFFICULTY) + 1, ""
    return _BY_DIFFICULTY.index(name) if name in _BY_DIFFICULTY else len(_BY_DIFFICULTY), name


def _rate(by: Grouping, name: str | None, tasks: Sequence[TaskResult], counts: Mapping[TaskRef, Counts]) -> GroupRate:
    refs = list(dict.fromkeys(task.ref for task in tasks))
    rates = [rate for ref in refs if (rate := counts.get(ref, Counts()).rate) is not None]
    total, measured = sum(task.attempts for task in tasks), sum(task.measured for task in tasks)
    return GroupRate(
        by=by,
        name=name,
        tasks=len(refs),
        total=total,
        passed=sum(task.passed for task in tasks),
        measured=measured,
        pass_rate=fsum(rates) / len(rates) if rates else None,
        coverage=measured / total if total else None,
    )
