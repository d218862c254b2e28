"""What lessons gain: profiles with lessons against their frozen controls, recall and transfer apart.

A control is a profile of the same batch that is equal but for `lessons`: whatever else changes over weeks (the model
behind a name, the machine, the network) changes both. Trials of a policy are pooled over its batches; the differences
are by task, with the statistics of `compare`. The policy is what is measured: also the lessons that it withholds.

A gain is looked at after every batch, and nobody declares how often: the verdict counts each batch as a look (signs
flipped over all of them at once), and an interval that excludes zero where the verdict does not is drawn up to zero.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from terminalbench.analytics.compare import compare
from terminalbench.analytics.model import Row, Verdict
from terminalbench.analytics.rows import rows_of
from terminalbench.analytics.settings import ComparisonSettings, stages_of
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import Plan, ProfileRecord
from terminalbench.index.exposures import LessonTrial, exposed_trials
from terminalbench.index.queries import BatchView
from terminalbench.index.results import open_views
from terminalbench.index.scan import scan_all
from terminalbench.text.numbers import NOTHING, points
from terminalbench.text.table import Columns

_LESSONS = "lessons"
"""The aspect of a profile that a control has not."""


class GainKind(StrEnum):
    """What a difference to the control says; the two are never mixed."""

    TRANSFER = "transfer"
    """Lessons from other tasks and families only (mode `masked`)."""
    RECALL = "recall"
    """Lessons from the task itself too (mode `recall`)."""


KINDS = {"masked": GainKind.TRANSFER, "recall": GainKind.RECALL}
"""By the mode of a profile."""


class Gain(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The pass rate of a policy with lessons less that of its control, over the tasks of both, with its interval.

    `trials` and `control_trials` are those measured. `verdict` is that of `compare`, with as many `looks` as there were
    batches to look at. `note` says why there is no difference, or what to mind.
    """

    kind: GainKind
    profile: str
    control: str
    policy_id: str
    batches: int
    tasks: int
    trials: int
    control_trials: int
    rate: float | None = None
    control_rate: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: Verdict = "inconclusive"
    looks: int = 1
    simulated: bool = False
    note: str | None = None

    @property
    def withheld(self) -> str | None:
        """Return why there is no verdict on a difference whose interval leaves out zero; None where there is one, or
        none."""
        sure = self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)
        return self.note if sure and self.verdict == "inconclusive" and not self.simulated else None


@dataclass(frozen=True)
class PolicyPair:
    """A profile with lessons and its control, of one plan."""

    kind: GainKind
    new: ProfileRecord
    old: ProfileRecord


def pairs(plan: Plan) -> Iterator[PolicyPair]:
    """The profiles of a plan with lessons that have a control in it: equal but for them."""
    jobs = {job.profile for job in plan.jobs}
    records = [one for one in plan.profiles if one.key in jobs]
    for new in records:
        mode = _mode(new.content)
        if mode is None:
            continue
        rest = _without(new.content)
        old = next((one for one in records if _mode(one.content) is None and _without(one.content) == rest), None)
        if old is not None:
            yield PolicyPair(KINDS[mode], new, old)


def _mode(content: Mapping[str, Any]) -> str | None:
    lessons = content.get(_LESSONS)
    mode = lessons.get("mode") if isinstance(lessons, Mapping) else None
    return mode if mode in KINDS else None


def _without(content: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in content.items() if name != _LESSONS}


def gains(views: Sequence[BatchView]) -> list[Gain]:
    """Return what batches say of each policy with lessons and its control; transfer before recall, then by profile.
    Pure."""
    rows: dict[tuple[Any, ...], list[Row]] = {}
    first: dict[tuple[Any, ...], PolicyPair] = {}
    looked: dict[tuple[Any, ...], list[BatchView]] = {}
    for view in _in_order(views):
        own = rows_of([view])
        for pair in pairs(view.plan):
            key = (pair.kind, pair.new.policy_id, pair.old.id)
            known = first.setdefault(key, pair)
            rows.setdefault(key, []).extend(_renamed(own, pair, known))
            looked.setdefault(key, []).append(view)
    order = sorted(first.items(), key=lambda item: (item[1].kind is GainKind.RECALL, item[1].new.key))
    return [_gain(pair, rows[key], looked[key]) for key, pair in order]


def _in_order(views: Sequence[BatchView]) -> list[BatchView]:
    """Batches as they were planned, each under a name of its own: those of several nights are called alike."""
    made = sorted(views, key=lambda view: (view.plan.provenance.created_at or "", view.batch))
    alike = Counter(view.batch for view in made)
    return [
        replace(view, batch=f"{view.batch} ({number})") if alike[view.batch] > 1 else view
        for number, view in enumerate(made, start=1)
    ]


def _renamed(rows: Iterable[Row], pair: PolicyPair, known: PolicyPair) -> Iterator[Row]:
    """The rows of a pair, of each policy under one name: what its memory held differs from batch to batch."""
    for row in rows:
        if row.profile == pair.new.key:
            yield replace(row, profile=known.new.key, profile_id=pair.new.policy_id)
        elif row.profile == pair.old.key:
            yield replace(row, profile=known.old.key)


def _gain(pair: PolicyPair, rows: Sequence[Row], views: Sequence[BatchView]) -> Gain:
    new, old = pair.new.key, pair.old.key
    declared = {new: pair.new.content, old: pair.old.content}
    asked = ComparisonSettings(baseline=old, contrasts=((new, old),), profiles=declared, growth=stages_of(views))
    found = compare(rows, asked)
    (contrast,) = found.contrasts
    measured = [row for row in rows if row.measured]
    interval = contrast.estimate.interval
    simulated = any(row.simulated for row in measured)
    notes = [*["simulated: no real agent was measured"] * simulated, *contrast.refused, *contrast.warnings]
    return Gain(
        kind=pair.kind,
        profile=new,
        control=old,
        policy_id=pair.new.policy_id,
        batches=len({row.batch for row in rows}),
        tasks=contrast.estimate.tasks,
        trials=sum(row.profile == new for row in measured),
        control_trials=sum(row.profile == old for row in measured),
        rate=contrast.estimate.new,
        control_rate=contrast.estimate.old,
        difference=contrast.estimate.difference,
        low=interval.low if interval is not None else None,
        high=interval.high if interval is not None else None,
        verdict=contrast.verdict,
        looks=(contrast.sequential.looks if contrast.sequential is not None else None) or 1,
        simulated=simulated,
        note="; ".join(notes) or None,
    )


@dataclass(frozen=True)
class ExposureSample:
    """The trials of some results folders for which lessons were eligible, and the batches that they are in."""

    trials: list[LessonTrial]
    batches: list[Batch]

    def gains(self) -> list[Gain]:
        """Return what lessons gained in these batches. One in which nothing was eligible says nothing about lessons."""
        return gains(open_views(self.batches))


def exposed(roots: Iterable[Path]) -> ExposureSample:
    """Return what results folders say of lessons, as they are on disk now."""
    trials: list[LessonTrial] = []
    batches: list[Batch] = []
    for root in dict.fromkeys(one.resolve() for one in roots):
        if root.is_dir():
            scan_all(root)
            found = exposed_trials(root)
            trials += found
            batches += [Batch(root / key) for key in dict.fromkeys(one.batch for one in found)]
    return ExposureSample(trials, batches)


GAINS = Columns[Gain](
    {
        "gain": lambda one: str(one.kind),
        "profile": lambda one: one.profile,
        "control": lambda one: one.control,
        "difference": lambda one: points(one.difference),
        "95 % interval": lambda one: (
            f"{points(one.low, unit=False)} to {points(one.high)}" if one.low is not None else NOTHING
        ),
        "tasks": lambda one: str(one.tasks),
        "trials": lambda one: f"{one.trials} / {one.control_trials}",
    }
)


def verdict_said(gain: Gain) -> str:
    """The verdict, and that it counts how often the gain could be looked at."""
    return gain.verdict + (f", corrected for {gain.looks} looks" if gain.looks > 1 else "")
