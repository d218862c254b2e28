"""The number and the name of a trial, as the bench gives them: Harbor plans attempts but does not number them.

A trial that finished keeps its number, over all waves of its profile, unless it is to be run again; every other one
gets the lowest number that is free. The number is in the trial's folder (`planned.json`), in its events, and in the
environment of its agent; the index and the live state take it from there.

Harbor names a trial by the first characters of its task's name, and its container and the folder mounted into it
too, which a process inside can read. The id of an instance of SWE-Bench Pro holds the commit that solves it.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.decode import convert
from terminalbench.experiments.batch import Batch
from terminalbench.harbor.read.result_file import TaskConfig
from terminalbench.json_files import decode_plain
from terminalbench.records.trial import ATTEMPT

_PLAN_LIMIT = 1 << 30


class _SupersededTrials(msgspec.Struct, frozen=True):
    """Of a plan, the trials that are run again, as `job/trial`."""

    superseded: frozenset[str] = frozenset()


class EarlierTrial(msgspec.Struct, frozen=True):
    """A trial that an earlier job of the profile has finished: its folder, its label and task, its attempt."""

    folder: str
    cell: tuple[str, str]
    attempt: int | None


def earlier_trials(batch: Batch, job: Path) -> list[EarlierTrial]:
    """Return what earlier jobs of the profile of the job with the folder `job` have finished and is not run again.

    Where the batch is on another machine, as that one has told it.
    """
    from terminalbench.harbor.read.notes import read_planned
    from terminalbench.harbor.read.results import finished_folders

    told = decode_plain(batch.earlier_json, list[EarlierTrial], _PLAN_LIMIT)
    if told is not None:
        return told
    found = decode_plain(batch.plan_json, _SupersededTrials, _PLAN_LIMIT) or _SupersededTrials()
    return [
        EarlierTrial(str(trial), task, read_planned(trial).attempt)
        for folder in sorted(job.parent.iterdir())
        if first_wave(folder.name) == first_wave(job.name)
        for trial, task in finished_folders(folder)
        if f"{folder.name}/{trial.name}" not in found.superseded
    ]


def numbered[T](items: Iterable[T], known: Callable[[T], int | None], most: int | None = None) -> dict[int, T]:
    """Each item by its number: the known one, if it is free and at most `most`; else the lowest that is free."""
    taken: dict[int, T] = {}
    others: list[T] = []
    for item in items:
        number = known(item)
        if number is None or number < 1 or number > (most or number) or number in taken:
            others.append(item)
        else:
            taken[number] = item
    free = (number for number in count(1) if number not in taken)
    return taken | dict(zip(free, others, strict=False))


def number_planned(job: Any, batch: Batch) -> dict[str, int]:
    """The attempt of every planned trial of Harbor's `job`, beside what earlier jobs of its profile have finished."""
    own = Path(job.job_dir)
    earlier = earlier_trials(batch, own)
    cells: dict[Path, Hashable] = {Path(one.folder): (one.cell, 0) for one in earlier}
    known = {Path(one.folder): one.attempt for one in earlier}
    agents: list[str] = []
    for config in job._trial_configs:  # Harbor has no public list; it is in planned order
        agent = repr((config.agent.name, config.agent.import_path, config.agent.model_name, config.agent.kwargs))
        if agent not in agents:
            agents.append(agent)
        task = convert(config.task, TaskConfig, from_attributes=True)
        cells[own / config.trial_name] = ((task.dataset or "", str(task)), agents.index(agent))
    by_cell: dict[Hashable, list[Path]] = defaultdict(list)
    for trial, cell in cells.items():
        by_cell[cell].append(trial)
    numbers = {t: number for trials in by_cell.values() for number, t in numbered(trials, known.get).items()}
    return {config.trial_name: numbers[own / config.trial_name] for config in job._trial_configs}


def tell_agent(agent: Any, number: int) -> None:
    """Put the number of a trial into the environment of its agent, when Harbor has made the trial.

    Not into its configuration, which has to stay as it was planned: Harbor resumes no job whose trials differ from it.
    """
    agent._extra_env[ATTEMPT] = str(number)  # Harbor gives out a copy


def first_wave(job: str) -> str:
    """The name of the job that `job` carries on: a further wave has `-w<number>` before its profile's key."""
    return re.sub(r"-w[0-9]+(?=__)", "", job, count=1)


_COMMIT = re.compile(r"[-_]+[0-9a-f]{40}(?![0-9a-f]).*")
_LONGEST = 32
"""How many characters of a task's name Harbor takes."""


def hide_commits(configs: Iterable[Any]) -> None:
    """Leave the commit out of the names of trials that have not begun; what else a name says stays."""
    for config in configs:
        task = config.task.get_task_id().get_name().split("/")[-1]
        shown = _COMMIT.sub("", task)
        if shown != task:
            unique = config.trial_name.rpartition("__")[2]
            config.trial_name = f"{shown[:_LONGEST].rstrip('_-') or 'instance'}__{unique}"
