"""In what a batch, or a question about it, departs from what was declared before its first trial."""

from enum import StrEnum

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
