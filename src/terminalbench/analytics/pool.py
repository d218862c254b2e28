"""All batches of an experiment that hold the same profiles: each further one was there to be looked at.

Of identical profiles that are run again and again, one batch will sooner or later say that they differ. So a comparison
takes every batch with the same treatments under the same conditions, unless a person says why not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

import msgspec

from terminalbench.analytics.settings import other_conditions, profile_names, treatment_of
from terminalbench.experiments.batch import Batch, batch_numbers
from terminalbench.experiments.departures import Departure, DepartureKind
from terminalbench.experiments.plan import Plan
from terminalbench.index.places import ForeignJobs, plan_or_none
from terminalbench.index.queries import BatchView
from terminalbench.json_files import append_jsonl, read_jsonl
from terminalbench.live.status import views_now
from terminalbench.records.trial import TaskRef
from terminalbench.text.numbers import percent, some

CHOICES = "left-out.jsonl"
"""In the folder of an experiment's batches: what a person left out of a comparison, and why."""
type Treatment = tuple[str, str]
"""The key of a profile, and the id of what it is."""


class Choice(msgspec.Struct, frozen=True):
    """Batches that a person left out of a comparison, by their numbers, and the reason."""

    at: str
    compared: tuple[int, ...]
    left_out: tuple[int, ...]
    why: str


@dataclass(frozen=True)
class Pool:
    """What is compared together: the batches that were named first, then every other with the same profiles.

    `departures` are those of a person who leaves some out; `notes` say which batches could not be taken, and why.
    """

    batches: tuple[Batch, ...]
    views: list[BatchView]
    departures: tuple[Departure, ...] = ()
    notes: tuple[str, ...] = ()


def pool(named: Sequence[Batch], *, by_snapshot: bool = False, only: str | None = None) -> Pool:
    """The batches that are named with every other one of their experiments that asks the same question.

    `only` is a person's reason to leave those out: a departure, and kept beside the batches. Where nothing was measured
    of a profile in those that are named, that is what there is to say of it, whatever others have.
    """
    others = siblings(named, by_snapshot=by_snapshot)
    views = views_now([*named, *others])
    own, further = views[: len(named)], views[len(named) :]
    measured = {cell.profile for view in own for cell in view.cells if cell.measured}
    if others and any(job.profile not in measured for view in own for job in view.plan.jobs):
        return Pool(tuple(named), own)
    told = _earlier_choices(named)
    taken: list[Batch] = []
    for batch, view in zip(others, further, strict=True):
        fits, why_not = _fitting(own, view, by_snapshot)
        if fits is None:
            told.append(f"{view.batch} has the same profiles but is not pooled: {why_not}")
            continue
        taken.append(batch)
        own.append(fits)
        told += [why_not] if why_not else []
    if only is None or not taken:
        return Pool((*named, *taken), own, notes=tuple(told))
    _keep(named, taken, only)
    return Pool(tuple(named), own[: len(named)], (left_out([view.batch for view in own[len(named) :]], only),))


def left_out(batches: Sequence[str], why: str | None = None) -> Departure:
    """That these batches hold the same profiles and are not compared."""
    reason = f": {why}" if why is not None else "; tbench compare pools them all"
    text = f"other batches with the same profiles are left out: {some(batches)}{reason}"
    return Departure(DepartureKind.BATCHES, text)


def unpooled(batches: Sequence[Batch]) -> tuple[Departure, ...]:
    """That a look at these batches alone leaves others of the same profiles out; nothing where there are none."""
    others = siblings(batches)
    return (left_out([f"{one.folder.parent.name}/{one.number}" for one in others]),) if others else ()


def siblings(named: Sequence[Batch], *, by_snapshot: bool = False) -> list[Batch]:
    """The batches of the same experiments that hold two of the treatments that are compared, or all of one batch."""
    ours = [(batch, plan) for batch in named if _has_siblings(batch) and (plan := plan_or_none(batch)) is not None]
    groups = [_treatments(plan, by_snapshot) for _, plan in ours]
    every: set[Treatment] = set().union(*groups)
    if len(every) < 2:
        return []
    known = {batch.folder.resolve() for batch in named}
    found = []
    for folder in dict.fromkeys(batch.folder.parent for batch, _ in ours):
        for number in batch_numbers(folder.parent, folder.name):
            batch = Batch(folder / str(number))
            plan = plan_or_none(batch) if batch.folder.resolve() not in known else None
            if plan is None:
                continue
            held = _treatments(plan, by_snapshot)
            if len(held & every) >= 2 or any(group <= held for group in groups):
                found.append(batch)
    return found


def _has_siblings(batch: Batch) -> bool:
    return not isinstance(batch, ForeignJobs) and batch.folder.name.isdecimal()


def _treatments(plan: Plan, by_snapshot: bool) -> set[Treatment]:
    return {(job.profile, treatment_of(plan, job, by_snapshot=by_snapshot)) for job in plan.jobs}


def _fitting(own: Sequence[BatchView], view: BatchView, by_snapshot: bool) -> tuple[BatchView | None, str | None]:
    """Return what of a further batch asks the same question, and what was left away; or None, and why it is another
    one."""
    if not any(cell.measured for cell in view.cells):
        return None, "none of its trials was measured"
    every = set().union(*(_treatments(one.plan, by_snapshot) for one in own))
    keys = {
        job.profile
        for job in view.plan.jobs
        if (job.profile, treatment_of(view.plan, job, by_snapshot=by_snapshot)) in every
    }
    names = profile_names([own[0], view], by_snapshot=by_snapshot)
    if other := other_conditions([own[0], view], names):
        return None, other[0].text
    ours, theirs = _digests(own), _digests([view])
    changed = [task for task, found in theirs.items() if task in ours and not found & ours[task]]
    jobs = tuple(job for job in view.plan.jobs if job.profile in keys)
    view = msgspec.structs.replace(
        view,
        plan=msgspec.structs.replace(view.plan, jobs=jobs),
        cells=[cell for cell in view.cells if cell.profile in keys and cell.task not in changed],
        superseded=[row for row in view.superseded if row.profile in keys],
    )
    if not view.cells:
        return None, "its tasks have changed since"
    wanted = own[0].plan.analysis.coverage
    for key in sorted(keys):
        share = fmean([cell.measured for cell in view.cells if cell.profile == key] or [False])
        if share < wanted:
            few = f"only {percent(share)} of the planned trials of {key} were measured ({percent(wanted)} needed)"
            return None, few
    said = f"{view.batch} had other versions of {some([task.id for task in changed])}: left out" if changed else None
    return view, said


def _digests(views: Sequence[BatchView]) -> dict[TaskRef, set[str]]:
    found: dict[TaskRef, set[str]] = {}
    for view in views:
        for cell in view.cells:
            trial = cell.row.trial if cell.row is not None and cell.measured else None
            digest = (trial.task_digest or trial.task_checksum) if trial is not None else None
            if digest is not None:
                found.setdefault(cell.task, set()).add(digest)
    return found


def _folders(batches: Sequence[Batch]) -> list[Path]:
    return list(dict.fromkeys(batch.folder.parent for batch in batches if _has_siblings(batch)))


def _earlier_choices(named: Sequence[Batch]) -> list[str]:
    """Return what was left out before, and why: looks that a person had."""
    told = []
    for folder in _folders(named):
        choices = read_jsonl(folder / CHOICES, Choice).records
        told += [
            f"on {one.at[:10]} {folder.name}/{some([str(n) for n in one.compared])} was compared without "
            f"{some([str(n) for n in one.left_out])}: {one.why}"
            for one in choices
        ]
    return list(dict.fromkeys(told))


def _keep(named: Sequence[Batch], taken: Sequence[Batch], why: str) -> None:
    for folder in _folders(named):
        compared, left = (
            tuple(sorted(batch.number for batch in which if batch.folder.parent == folder)) for which in (named, taken)
        )
        choice = Choice(datetime.now(UTC).isoformat(), compared, left, why)
        known = read_jsonl(folder / CHOICES, Choice).records
        if not any((one.compared, one.left_out, one.why) == (compared, left, why) for one in known):
            append_jsonl(folder / CHOICES, choice)
