"""The gym of a project: which tasks teach, which measure, and who has looked at those that are sealed.

    .terminalbench/gym/
      splits.jsonl    each time families were assigned, append-only; a family keeps its first place
      looks.jsonl     each look at held-out tasks, append-only: when, by whom, why, at which tasks

A look is in the log before the tasks are told. A line of splits.jsonl that cannot be read is an error, one that is cut
off too: a family whose place is not known could be assigned anew. A family is never cut, and stays where it is: tasks
and families that are added later find their place beside it. The parts are those of a project, not of one environment:
a task that is held out in one is held out in all.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import msgspec

from terminalbench.campaign import labels_of
from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.experiment import Task
from terminalbench.index.scan import scan_all
from terminalbench.index.store import open_index
from terminalbench.json_files import append_jsonl, read_log
from terminalbench.locks import changing
from terminalbench.overnight.episodes import GYM
from terminalbench.records.values import stamp
from terminalbench.text.numbers import plural, some
from terminalbench.trainer.environments import Environment
from terminalbench.trainer.journal import (
    HOLDOUT_PART,
    NIGHT_LABEL,
    PART_LABEL,
    TRAINING_LABEL,
    read_sealed,
    training_folder,
)

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


_ATTEMPTS = "SELECT batch, dataset || '/' || task AS name, count(*) AS trials FROM trials GROUP BY batch, name"


def trials_outside(root: Path, results_root: Path, tasks: Set[str]) -> dict[str, int]:
    """Return how many trials of these tasks (`dataset/id`) each batch has that was not run by a look at the holdout."""
    if not results_root.is_dir():
        return {}
    scan_all(results_root)
    found: dict[str, int] = {}
    with open_index(results_root) as connection:
        for batch, name, trials in connection.execute(_ATTEMPTS):
            if name in tasks:
                found[batch] = found.get(batch, 0) + trials
    return {batch: trials for batch, trials in found.items() if not _is_look(root, Batch(results_root / batch))}


def outside_line(found: Mapping[str, int]) -> str | None:
    """These trials in a line; None where there are none."""
    if not found:
        return None
    return f"outside of recorded looks: {plural(sum(found.values()), 'trial')} of held-out tasks in {some([*found], 6)}"


def _is_look(root: Path, batch: Batch) -> bool:
    """Return whether a training ran the batch for a look that it has recorded."""
    labels = labels_of(batch)
    slug = labels.get(TRAINING_LABEL)
    if slug is None or labels.get(PART_LABEL) != HOLDOUT_PART:
        return False
    return any(str(one.look) == labels.get(NIGHT_LABEL) for one in read_sealed(training_folder(root, slug)))


class SplitEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A line of splits.jsonl."""

    time: str
    environment: str
    seed: int
    shares: tuple[float, float, float]
    assigned: tuple[SplitAssignment, ...]


class GymLook(msgspec.Struct, frozen=True, kw_only=True):
    """A line of looks.jsonl: the `number`th look of the project, at `tasks` (`dataset/id`)."""

    number: int
    time: str
    environment: str
    by: str
    reason: str
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class Split:
    """The split of an environment: what is open of it. Held-out tasks are only counted; `Gym.look` tells them."""

    environment: str
    train: tuple[Task, ...]
    dev: tuple[Task, ...]
    held_out: int
    unassigned: tuple[Task, ...]
    digest: str


class Gym:
    """Splits and looks of a project. Processes may share it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.splits_file = root / GYM / "splits.jsonl"
        self.looks_file = root / GYM / "looks.jsonl"

    def assignments(self) -> list[SplitAssignment]:
        """Every family that has a place."""
        return [one for entry in read_log(self.splits_file, SplitEntry, whole=True) for one in entry.assigned]

    def split(self, environment: Environment) -> Split:
        """The split as it is, with nothing assigned anew."""
        return _split(environment, parts_of(environment.tasks, self.assignments()))

    def would_split(self, environment: Environment, shares: Shares, seed: int) -> Split:
        """The split that `make_split` would make. Writes nothing."""
        known = self.assignments()
        made = assign(environment.tasks, known, shares, seed)
        return _split(environment, parts_of(environment.tasks, [*known, *made]))

    def make_split(self, environment: Environment, shares: Shares | None = None, seed: int = 0) -> Split:
        """The split with a place for every task; what was assigned before stays."""
        wanted = shares or Shares()
        with changing(self.splits_file):
            known = self.assignments()
            made = assign(environment.tasks, known, wanted, seed)
            if made:
                entry = SplitEntry(
                    time=_now(),
                    environment=environment.name,
                    seed=seed,
                    shares=(wanted.train, wanted.dev, wanted.holdout),
                    assigned=tuple(made),
                )
                append_jsonl(self.splits_file, entry, durable=True)
        return _split(environment, parts_of(environment.tasks, [*known, *made]))

    def look(self, environment: Environment, *, by: str, reason: str) -> GymLook:
        """A look at the held-out tasks of an environment, which names them; it is recorded before it is returned."""
        if not reason.strip():
            raise UserError("a look at held-out tasks needs a reason", where=environment.name)
        tasks = self._held_out(environment)
        if not tasks:
            raise UserError(
                "has no held-out tasks", where=environment.name, hint=f"tbench trainer gym split {environment.name}"
            )
        with changing(self.looks_file):
            number = len(read_log(self.looks_file, GymLook)) + 1
            names = tuple(task.name for task in tasks)
            look = GymLook(
                number=number, time=_now(), environment=environment.name, by=by, reason=reason.strip(), tasks=names
            )
            append_jsonl(self.looks_file, look, durable=True)
        return look

    def looks(self, environment: Environment) -> list[GymLook]:
        """The looks at held-out tasks of an environment, also those through another one that has them.

        They count for ever, whatever became of the split.
        """
        names = {task.name for task in environment.tasks}
        return [look for look in read_log(self.looks_file, GymLook) if not names.isdisjoint(look.tasks)]

    def trials_outside(self, environment: Environment, results_root: Path) -> dict[str, int]:
        """Return how many trials of its held-out tasks were attempted outside of looks, by batch."""
        held = {task.name for task in self._held_out(environment)}
        return trials_outside(self.root, results_root, held) if held else {}

    def _held_out(self, environment: Environment) -> tuple[Task, ...]:
        parts = parts_of(environment.tasks, self.assignments())
        return _in(environment.tasks, parts.get, SplitPart.HOLDOUT)


def _split(environment: Environment, parts: dict[tuple[str, str], SplitPart]) -> Split:
    return Split(
        environment.name,
        _in(environment.tasks, parts.get, SplitPart.TRAIN),
        _in(environment.tasks, parts.get, SplitPart.DEV),
        sum(part is SplitPart.HOLDOUT for part in parts.values()),
        _in(environment.tasks, parts.get, None),
        split_digest(parts),
    )


def _in(
    tasks: Sequence[Task], part_of: Callable[[tuple[str, str]], SplitPart | None], part: SplitPart | None
) -> tuple[Task, ...]:
    return tuple(task for task in tasks if part_of((task.dataset, task.id)) is part)


def _now() -> str:
    return stamp(datetime.now(UTC))
