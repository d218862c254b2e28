"""Which attempt a trial is: Harbor plans attempts but does not number them.

In a job the nth planned trial of a task by the same agent is attempt n. The plugin writes that number with each
event; a resumed job keeps the numbers of the trials it keeps and gives the free ones to the new trials.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

from terminalbench.files import read_jsonl
from terminalbench.records import Event


def assign(planned: Iterable[tuple[str, Hashable]], known: Mapping[str, int]) -> dict[str, int]:
    """A number for each (name, cell) in order: the known ones stay, the others get the lowest free of their cell."""
    cells: dict[Hashable, list[str]] = defaultdict(list)
    for name, cell in planned:
        cells[cell].append(name)
    numbers: dict[str, int] = {}
    for names in cells.values():
        taken: set[int] = set()
        for name in names:
            number = known.get(name)
            if number is not None and number > 0 and number not in taken:
                numbers[name] = number
                taken.add(number)
        free = (number for number in range(1, 2 * len(names) + max(taken, default=0) + 1) if number not in taken)
        for name in names:
            if name not in numbers:
                numbers[name] = next(free)
    return numbers


def number_planned(job: Any, name: str, events: Path) -> dict[str, int]:
    """The attempt of every planned trial of Harbor's `job`. A resumed job keeps the numbers of the trials it keeps."""
    # A killed Harbor can leave no usable job result, and Harbor then does not call it resuming.
    resumed = job.is_resuming or bool(job._existing_trial_configs)
    known = attempts_from_events(events, name) if resumed else {}
    planned: list[tuple[str, Hashable]] = []
    for config in job._trial_configs:  # Harbor has no public list; it is in planned order
        agent = config.agent
        task = (config.task.source, str(config.task.get_task_id()))
        cell = (task, agent.name, agent.import_path, agent.model_name, repr(agent.kwargs))
        planned.append((config.trial_name, cell))
    return assign(planned, known)


def attempts_from_events(events: Path, job: str) -> dict[str, int]:
    """The attempts that `events.jsonl` has recorded for the trials of a job, by trial name."""
    return {
        event.trial: event.attempt
        for event in read_jsonl(events, Event).records
        if event.job == job and event.trial is not None and event.attempt is not None
    }
