"""In what a batch, or a question about it, departs from what was declared before its first trial; and its states
before it grew, time after time: at each it could be looked at. Pure.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec


class DepartureKind(StrEnum):
    """In what a batch or a question departs from what was declared: the name by which a person accepts it."""

    BASELINE = "baseline"
    CONTRASTS = "contrasts"
    """A contrast that was not declared, or a declared one that is not asked for."""
    ANALYSIS = "analysis"
    """The `[analysis]` table of the file is another one now."""
    ATTEMPTS = "attempts"
    TASKS = "tasks"
    PROFILES = "profiles"
    PLANNED_TRIALS = "planned-trials"
    TOP_UP = "top-up"
    RUN_SETTINGS = "run-settings"
    """Batches that are compared together were run with other time limits or arguments."""
    PICKED = "picked"
    """Tasks or profiles were picked by hand, after the results."""
    CHANGED_TASKS = "changed-tasks"
    """A task was changed between trials of a batch."""
    CHANGED_PROFILES = "changed-profiles"
    """So was the code of an agent, a skill or an MCP server."""
    CHANGED_BASES = "changed-bases"
    """So was the image that a task runs on: its tag means another one now, or it was built anew."""
    LOST_VERDICTS = "lost-verdicts"
    """Trials that had ended with a verdict were gone, and are run again."""
    BATCHES = "batches"
    """Batches of the experiment that hold the same profiles are left out."""
    OTHER = "other"
    """Recorded by an earlier version, as a sentence only."""


class Departure(msgspec.Struct, frozen=True):
    """One departure from what was declared before the first trial, and its sentence."""

    kind: DepartureKind
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class GrownFrom(msgspec.Struct, frozen=True, omit_defaults=True):
    """A batch before it became more: the attempts of every task. `added` are the tasks (`dataset/id`) it got then."""

    attempts: int
    added: tuple[str, ...] = ()


class Extent(NamedTuple):
    """The tasks of a batch, and how many attempts of each there are."""

    attempts: int
    tasks: Sequence[str]


class EarlierExtent(NamedTuple):
    """The part of a batch at an earlier time: so many attempts of every task, `without` tasks added since."""

    attempts: int
    without: frozenset[str] = frozenset()


def earlier(grown_from: Iterable[GrownFrom | int], declared: Extent, now: Extent) -> tuple[EarlierExtent, ...]:
    """Return what there was each time before it became more, from what was declared to what there is now.

    An earlier version did not say: it may have been any number of attempts, and all tasks that were added at once.
    """
    known = [one if isinstance(one, GrownFrom) else GrownFrom(one) for one in grown_from]
    steps = [one for one in known if declared.attempts <= one.attempts < now.attempts + bool(one.added)]
    if declared.attempts < now.attempts and (not steps or steps[0].attempts != declared.attempts):
        steps = [GrownFrom(n) for n in range(declared.attempts, now.attempts)] + [one for one in steps if one.added]
    told = {*declared.tasks, *(task for one in steps for task in one.added)}
    if untold := tuple(task for task in now.tasks if task not in told):
        steps.append(GrownFrom(now.attempts, untold))
    return tuple(
        EarlierExtent(one.attempts, frozenset(task for later in steps[place:] for task in later.added))
        for place, one in enumerate(steps)
    )
