"""Who may learn from a task: train, dev and holdout, by whole families. Pure.

A family is never cut, and once assigned it stays where it is: tasks and families that are added later find their place
beside it. The parts are those of a project, not of one environment: a task that is held out in one is held out in all.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from terminalbench.errors import UserError
from terminalbench.experiments.experiment import Task

FEWEST_UNITS = 3


class SplitPart(StrEnum):
    """What the tasks of a family are for."""

    TRAIN = "train"
    """Searched on: candidates are made from what happened here, and ranked here."""
    DEV = "dev"
    """Measures a challenger against the champion; nothing is made from what happened here."""
    HOLDOUT = "holdout"
    """Sealed: looked at rarely, each time with a reason that is recorded."""


class SplitUnit(msgspec.Struct, frozen=True):
    """What is assigned as a whole: a family of a dataset, or a task that has none."""

    dataset: str
    name: str
    family: bool


class SplitAssignment(msgspec.Struct, frozen=True):
    """Where a unit belongs, and the tasks that it had when it was assigned."""

    unit: SplitUnit
    tasks: tuple[str, ...]
    part: SplitPart


@dataclass(frozen=True)
class Shares:
    """How large the parts shall be, in any unit; whole families come only near to it."""

    train: float = 0.4
    dev: float = 0.4
    holdout: float = 0.2

    def of(self, part: SplitPart) -> float:
        """The share of a part, of 1."""
        return getattr(self, part) / (self.train + self.dev + self.holdout)


def unit_of(task: Task) -> SplitUnit:
    """The unit that a task belongs to."""
    return SplitUnit(task.dataset, task.family or task.id, task.family is not None)


def parts_of(tasks: Iterable[Task], known: Iterable[SplitAssignment]) -> dict[tuple[str, str], SplitPart]:
    """The part of each task that has one, by (dataset, id). A task with two is a UserError."""
    by_unit, by_task = _known(known)
    found: dict[tuple[str, str], SplitPart] = {}
    for task in tasks:
        key = (task.dataset, task.id)
        whole, single = by_unit.get(unit_of(task)), by_task.get(key)
        if whole is not None and single is not None and whole is not single:
            hint = "give the task the family that it had at the split"
            raise UserError(f'is in {single}, its family "{task.family}" in {whole}', where=task.id, hint=hint)
        if (part := whole or single) is not None:
            found[key] = part
    return found


def assign(tasks: Sequence[Task], known: Sequence[SplitAssignment], shares: Shares, seed: int) -> list[SplitAssignment]:
    """Return where the units go that have no place yet: to the part that lacks most, in an order drawn by the seed.

    Each part gets at least one unit. Raises UserError where there are too few units, or one would be cut.
    """
    parts = parts_of(tasks, known)
    units: dict[SplitUnit, list[Task]] = {}
    for task in tasks:
        units.setdefault(unit_of(task), []).append(task)
    if len(units) < FEWEST_UNITS:
        raise UserError(
            f"{len(units)} families cannot be split into {', '.join(SplitPart)}",
            hint="use more tasks, or give tasks families (a task without a family is its own)",
        )
    counts: Counter[SplitPart] = Counter(parts.values())
    made: list[SplitAssignment] = []
    fresh = []
    for unit, members in units.items():
        held = {parts[key] for task in members if (key := (task.dataset, task.id)) in parts}
        if len(held) > 1:
            raise UserError(f'family "{unit.name}" would be cut: its tasks are in {" and ".join(sorted(held))}')
        if not held:
            fresh.append(unit)
        elif _known(known)[0].get(unit) is None:  # its tasks were assigned before it was a family
            made.append(_assignment(unit, members, held.pop()))
    fresh.sort(key=lambda unit: _order(unit, seed))
    for place, unit in enumerate(fresh):
        empty = [part for part in SplitPart if not counts[part]]
        choices = empty if len(fresh) - place <= len(empty) else list(SplitPart)
        part = max(choices, key=lambda part: shares.of(part) * len(tasks) - counts[part])
        counts[part] += len(units[unit])
        made.append(_assignment(unit, units[unit], part))
    if missing := [part for part in SplitPart if not counts[part]]:
        raise UserError(f"no family is left for {' and '.join(missing)}: all were assigned before")
    return made


def split_digest(parts: Mapping[tuple[str, str], SplitPart]) -> str:
    """Stands for who is where: another digest, another split."""
    text = "".join(f"{dataset}\0{task}\0{part}\n" for (dataset, task), part in sorted(parts.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _known(known: Iterable[SplitAssignment]) -> tuple[dict[SplitUnit, SplitPart], dict[tuple[str, str], SplitPart]]:
    by_unit: dict[SplitUnit, SplitPart] = {}
    by_task: dict[tuple[str, str], SplitPart] = {}
    for one in known:
        by_unit.setdefault(one.unit, one.part)
        for task in one.tasks:
            by_task.setdefault((one.unit.dataset, task), one.part)
    return by_unit, by_task


def _assignment(unit: SplitUnit, members: Sequence[Task], part: SplitPart) -> SplitAssignment:
    return SplitAssignment(unit, tuple(task.id for task in members), part)


def _order(unit: SplitUnit, seed: int) -> str:
    return hashlib.sha256(f"{seed}\0{unit.dataset}\0{unit.family}\0{unit.name}".encode()).hexdigest()
