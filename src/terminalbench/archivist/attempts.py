"""Measured trials as a reflection sees them: what makes us look at them, which it looks at, where a lesson comes from.

What the guards of a workflow refused is known by its trace, which the agent's process writes.
"""

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from terminalbench.analytics.atif import TrajectoryStep
from terminalbench.analytics.findings.failure import FailureVerdict, classify, signature
from terminalbench.analytics.findings.trial import read_ctrf
from terminalbench.analytics.judge.material import Material, NoMaterial, load_material
from terminalbench.analytics.judge.request import JudgeTrial
from terminalbench.analytics.selection import SelectedBatch, ran
from terminalbench.archivist.entries import Trigger
from terminalbench.experiments.lessons import without_lessons
from terminalbench.records.lesson import Evidence, Lesson
from terminalbench.records.trial import Outcome, TaskRef
from terminalbench.text.numbers import plural, some
from terminalbench.workflow.history import GuardCheck, read_history

LEAST_TRIALS = 2
"""So many trials must have failed in the same way before something is made of it."""
_ALWAYS_PASSED = 3
"""A task that passed so often before, and never failed, is not expected to fail."""
_ALWAYS_FAILED = 2
"""A task that failed so often before, and never passed, was not expected to pass."""


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


MOST_TASKS = 3


@dataclass(frozen=True)
class EvidenceTrial:
    """A measured trial, and what it is called in evidence."""

    trial: JudgeTrial
    name: str

    @property
    def passed(self) -> bool:
        """Return whether the verifier passed it."""
        return self.trial.outcome is Outcome.PASSED

    @property
    def cell(self) -> TriggerCell:
        """Whose attempt at what it is."""
        return TriggerCell(self.trial.profile, self.trial.task)

    @property
    def failure(self) -> FailureVerdict:
        """The class of its failure."""
        return classify(self.trial.files, self.trial.files.story.trajectory)

    @property
    def signature(self) -> str | None:
        """Return what went wrong, equal for equal causes."""
        tests = read_ctrf(self.trial.files)
        return signature(self.trial.files, tests if isinstance(tests, list) else None)

    @property
    def told(self) -> frozenset[str]:
        """The lessons that it was shown: what it did is no support for them."""
        record = self.trial.files.record
        lessons = record.delivery.lessons if record is not None else None
        return frozenset(one.lesson for one in lessons.exposures if one.shown) if lessons is not None else frozenset()

    @cached_property
    def refusals(self) -> list[GuardRefusal]:
        """Return what guards refused in it."""
        return refusals(self.trial.files.folder)


@dataclass(frozen=True)
class ReadableTrial:
    """An attempt whose trajectory can be read."""

    attempt: EvidenceTrial
    material: Material


def attempts_of(part: SelectedBatch) -> list[EvidenceTrial]:
    """The measured trials of a batch, but of profiles that see the hidden verdict: what they know is no lesson."""
    oracles = {record.key for record in part.view.plan.profiles if record.content.get("oracle") is True}
    found = []
    for cell in part.cells:
        if cell.row is not None and ran(cell) and cell.outcome.measured and cell.profile not in oracles:
            files = part.files(cell.row)
            trial = JudgeTrial(files=files, task=cell.task, profile=cell.profile, outcome=cell.outcome)
            found.append(EvidenceTrial(trial, f"{part.key}/{trial.key}"))
    return found


def verdicts(attempts: Sequence[EvidenceTrial]) -> Verdicts:
    """Return whether they passed, by task and profile."""
    found: dict[TriggerCell, list[bool]] = {}
    for one in attempts:
        found.setdefault(one.cell, []).append(one.passed)
    return found


def telling(attempts: Sequence[EvidenceTrial], first: Collection[TaskRef] = ()) -> list[EvidenceTrial]:
    """The attempts to look at: of each task a failed one and, where there is one, one that passed.

    Tasks of `first` come first, then contrasts.
    """
    tasks: dict[TaskRef, list[EvidenceTrial]] = {}
    for attempt in attempts:
        tasks.setdefault(attempt.trial.task, []).append(attempt)
    pairs = []
    for found in tasks.values():
        failed = next((one for one in found if not one.passed), None)
        passed = next((one for one in found if one.passed), None)
        if failed is not None:
            pairs.append([one for one in (failed, passed) if one is not None])
    pairs.sort(key=lambda pair: (pair[0].trial.task not in first, -len(pair)))
    return [one for pair in pairs[:MOST_TASKS] for one in pair]


def readable(attempts: Sequence[EvidenceTrial]) -> list[ReadableTrial]:
    """Those whose trajectory can be read; without the lessons that they were given, which are no news."""
    found = []
    for attempt in attempts:
        try:
            material = load_material(attempt.trial)
        except NoMaterial:
            continue
        steps = tuple(dataclasses.replace(entry, step=_as_asked(entry.step)) for entry in material.steps)
        found.append(ReadableTrial(attempt, dataclasses.replace(material, steps=steps)))
    return found


def _as_asked(step: TrajectoryStep) -> TrajectoryStep:
    return replace(step, message=without_lessons(step.text)) if step.source == "user" else step


def supported(lesson: Lesson, attempts: Sequence[EvidenceTrial], evidence: list[Evidence]) -> Lesson:
    """A lesson with where it comes from. One that comes from a simulated trial, too, is simulated."""
    records = [record for one in attempts if (record := one.trial.files.record) is not None]
    models = {record.model for record in records}
    profiles = {one.trial.profile for one in attempts}
    return replace(
        lesson,
        evidence=evidence,
        source_tasks=list(dict.fromkeys(one.trial.task for one in attempts)),
        model=models.pop() if len(models) == 1 else None,
        profile=profiles.pop() if len(profiles) == 1 else None,
        simulated=any(record.simulated for record in records),
    )
