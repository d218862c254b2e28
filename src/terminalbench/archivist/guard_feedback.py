"""What the guards of a workflow refused in a trial: by its trace, which the agent's process writes."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from terminalbench.workflow.history import GuardCheck, read_history

LONGEST = 600
"""Characters of a feedback that are shown."""
_MOST = 6
"""Refusals of a trial that are shown, the most frequent first."""


@dataclass(frozen=True)
class GuardRefusal:
    """A guard that refused answers of one trial for one reason, how often, and what it said the last time."""

    guard: str
    signature: str | None
    feedback: str
    times: int


def refusals(trial: Path) -> list[GuardRefusal]:
    """Return what guards refused in a trial, the most frequent first; nothing where it has no workflow."""
    history = read_history(trial)
    if history is None:
        return []
    refused = [by for attempt in history.attempts if (by := attempt.rejected_by) is not None]
    counts = Counter(map(_kind, refused))
    last = {_kind(by): by.feedback for by in refused}
    return [GuardRefusal(*kind, last[kind], times) for kind, times in counts.most_common(_MOST)]


def _kind(by: GuardCheck) -> tuple[str, str | None]:
    return by.guard, by.signature


def told(found: list[GuardRefusal]) -> str:
    """Refusals as a model reads them; empty without any."""
    lines = [f"guard {one.guard} refused {one.times} times: {one.feedback[:LONGEST]}" for one in found]
    return "\n".join(lines)
