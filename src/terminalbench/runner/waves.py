"""The rest of a job, and the further job that does it. Pure."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from terminalbench.experiments.plan import JobSpec, PlannedTask
from terminalbench.harbor.attempt_numbers import first_wave

type Cell = tuple[str, str]
"""A dataset label and a task id."""


def wanted(job: JobSpec) -> Counter[Cell]:
    """Return how many trials of each cell a job plans; a task may stand in it more than once."""
    return Counter((task.label, task.ref.id) for task in job.tasks for _ in range(job.attempts_of(task)))


def remaining(job: JobSpec, finished: Mapping[Cell, int]) -> Counter[Cell]:
    """Return how many trials of each cell are missing."""
    return Counter({cell: n for cell, count in wanted(job).items() if (n := count - finished.get(cell, 0)) > 0})


def next_wave(job: JobSpec, missing: Mapping[Cell, int], name: str) -> JobSpec:
    """A job of single attempts for exactly the missing trials: attempt by attempt, in the order of the tasks."""
    rounds = max(missing.values(), default=0)
    each = {(task.label, task.ref.id): msgspec.structs.replace(task, extra=0) for task in job.tasks}
    tasks = tuple(task for number in range(rounds) for cell, task in each.items() if missing.get(cell, 0) > number)
    return msgspec.structs.replace(job, name=name, attempts=1, tasks=tasks)


def split(job: JobSpec, most: int) -> list[tuple[PlannedTask, ...]]:
    """The tasks of a job in parts of `most` trials, or a few more: all attempts at a task are in the same part."""
    cells: dict[Cell, list[PlannedTask]] = {}
    for task in job.tasks:
        cells.setdefault((task.label, task.ref.id), []).append(task)
    parts: list[list[PlannedTask]] = []
    room = 0
    for tasks in cells.values():
        if room <= 0:
            parts.append([])
            room = most
        parts[-1] += tasks
        room -= sum(job.attempts_of(task) for task in tasks)
    return [tuple(part) for part in parts]


@dataclass
class AbortSearch:
    """Finds the tasks that end a job, and keeps them from taking others with them.

    After an abort the tasks in question (the first that did not start, and those that were running) are put off,
    and everything else runs first. Then they run one at a time, which tells for certain which of them it is: the one
    that was running, else the one that did not start. `deaths` counts the aborts while trials of a cell ran.
    """

    suspects: set[Cell] = field(default_factory=set)
    culprits: set[Cell] = field(default_factory=set)
    deaths: Counter[Cell] = field(default_factory=Counter)
    one_at_a_time: bool = False

    def learn(self, wave: JobSpec, started: Mapping[Cell, int], finished: Mapping[Cell, int]) -> Cell | None:
        """Take an aborted wave into account; returns the cell whose trial did it: it ran alone, and not the first time.

        What did not start is a culprit; a trial that did it has ended so, and others of its cell may still run.
        """
        stopped_at = first_not_started(wave, started)
        running = {cell: n for cell, count in started.items() if (n := count - finished.get(cell, 0)) > 0}
        self.deaths.update(running.keys())
        self.suspects |= running.keys()
        if stopped_at is not None and not (self.one_at_a_time and running):
            (self.culprits if self.one_at_a_time else self.suspects).add(stopped_at)
        alone = next(iter(running)) if list(running.values()) == [1] else None
        return alone if alone is not None and self.deaths[alone] > 1 else None

    def choose(self, missing: Mapping[Cell, int]) -> dict[Cell, int]:
        """Return what to run next of what is missing; empty when only culprits are left."""
        open_cells = {cell: count for cell, count in missing.items() if cell not in self.culprits}
        others = {cell: count for cell, count in open_cells.items() if cell not in self.suspects}
        self.one_at_a_time = not others
        return others or open_cells


def first_not_started(wave: JobSpec, started: Mapping[Cell, int]) -> Cell | None:
    """The first task, in the order Harbor starts them, of which a trial did not start."""
    seen: Counter[Cell] = Counter()
    for _ in range(wave.attempts):
        for task in wave.tasks:
            cell = (task.label, task.ref.id)
            seen[cell] += 1
            if started.get(cell, 0) < seen[cell]:
                return cell
    return None


def wave_name(job: str, number: int) -> str:
    """The name of the nth job of a profile (from 2): the stamp of the first, marked."""
    day, time, profile = first_wave(job).split("__", 2)
    return f"{day}__{time}-w{number}__{profile}"
