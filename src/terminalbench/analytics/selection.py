"""Which trials an analysis is about: batches and folders of Harbor jobs as views, and what is picked of them."""

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from terminalbench.analytics.findings.analyzers import FindingsCache, LoadedAnalyzer
from terminalbench.analytics.findings.trial_files import TrialFiles
from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.departures import Departure, DepartureKind
from terminalbench.experiments.envfile import secrets_of
from terminalbench.experiments.plan import Plan
from terminalbench.index.places import plan_or_none
from terminalbench.index.queries import BatchView, CellState, TrialRow
from terminalbench.index.store import open_index
from terminalbench.live.status import views_now
from terminalbench.records.trial import Finding, Outcome, ReadState, TaskRef
from terminalbench.secrets.values import Secrets
from terminalbench.text.names import fits, fits_one, is_task, unknown
from terminalbench.text.numbers import some

type Only = Literal["succeeded", "failed"]


@dataclass(frozen=True)
class Filter:
    """Which trials to analyse; empty means all. A `limit` draws at random, the same for the same seed."""

    tasks: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    only: Only | None = None
    limit: int | None = None
    seed: int = 0

    @property
    def is_all(self) -> bool:
        """Return whether nothing is left out."""
        return not (self.tasks or self.profiles or self.only) and self.limit is None

    @property
    def is_sample(self) -> bool:
        """Return whether trials are picked by how they ended or at random: no basis for a comparison."""
        return self.only is not None or self.limit is not None


@dataclass(frozen=True)
class SelectedBatch:
    """A batch with the cells that are analysed: the root its index lies in, its state, its secrets."""

    batch: Batch
    root: Path
    view: BatchView
    secrets: Secrets
    cells: list[CellState]

    @property
    def trials(self) -> list[TrialRow]:
        """The folders to read; a trial that was held never started."""
        return [cell.row for cell in self.cells if cell.row is not None and ran(cell)]

    @property
    def key(self) -> str:
        """Return what the index calls the batch."""
        return self.batch.folder.relative_to(self.root).as_posix()

    def files(self, row: TrialRow) -> TrialFiles:
        """Return what the analyzers see of a trial."""
        runs = self.batch.superseded if row.superseded else self.batch.runs
        return TrialFiles.of(row, runs / row.key, self.batch.folder, self.secrets)

    def findings(self, analyzers: Sequence[LoadedAnalyzer]) -> Iterator[tuple[CellState, list[Finding]]]:
        """Each cell with its findings, from the cache; none for a cell that never ran."""
        names = [loaded.name for loaded in analyzers]
        with open_index(self.root) as connection:
            cache = FindingsCache(connection, self.key)
            for cell in self.cells:
                row = cell.row if ran(cell) else None
                yield cell, cache.read(row.job, row.name, names) if row is not None else []


def _opened(batches: Sequence[Batch]) -> list[SelectedBatch]:
    """Bring the index of batches up to date and look at them."""
    views = views_now(batches)
    return [
        SelectedBatch(batch, batch.results_root, view, secrets_of(plan_or_none(batch)), view.cells)
        for batch, view in zip(batches, views, strict=True)
    ]


def _check_names(opened: Sequence[SelectedBatch], wanted: Filter, where: str) -> None:
    """Every wanted task and profile is in one of the batches. Raises UserError for one that is in none."""
    jobs = [job for part in opened for job in part.view.plan.jobs]
    profiles = list(dict.fromkeys(job.profile for job in jobs))
    for name in wanted.profiles:
        if not any(fits(profile, name) for profile in profiles):
            raise unknown("profile", name, profiles, where)
    refs = list(dict.fromkeys(task.ref for job in jobs for task in job.tasks))
    for name in wanted.tasks:
        if not any(_called(ref, name) for ref in refs):
            raise unknown("task", name, (ref.id for ref in refs), where)


def _selected(view: BatchView, wanted: Filter) -> BatchView:
    """The view with only the wanted tasks and profiles, in the plan too, which then says what was left out."""
    if not wanted.tasks and not wanted.profiles:
        return view
    plan = view.plan
    refs = list(dict.fromkeys(task.ref for job in plan.jobs for task in job.tasks))
    tasks = {ref for ref in refs if not wanted.tasks or any(_called(ref, name) for name in wanted.tasks)}
    jobs = tuple(
        msgspec.structs.replace(job, tasks=kept)
        for job in plan.jobs
        if not wanted.profiles or fits_one(job.profile, wanted.profiles)
        if (kept := tuple(task for task in job.tasks if task.ref in tasks))
    )
    keys = {job.profile for job in jobs}
    baseline = plan.baseline if plan.baseline in keys or not jobs else jobs[0].profile
    places = {(t.label, t.ref.id) for job in jobs for t in job.tasks}
    cells = [cell for cell in view.cells if cell.profile in keys and cell.task in tasks]
    fewer = len(cells) < len(view.cells)
    said = _left_out(plan, tasks, keys, baseline) if fewer else []
    again = [
        row
        for row in view.superseded
        if row.profile in keys and (not wanted.tasks or (row.dataset, row.task) in places)
    ]
    plan = msgspec.structs.replace(plan, jobs=jobs, baseline=baseline, departures=(*plan.departures, *said))
    return BatchView(view.batch, plan, cells, again, len(view.cells) if fewer else None, view.notes)


def _left_out(plan: Plan, tasks: Collection[TaskRef], profiles: Collection[str], baseline: str) -> list[Departure]:
    """Return what a hand-picked part of a batch departs from: a choice made after looking can give any verdict."""
    found: list[str] = []
    planned = {task.ref for job in plan.jobs for task in job.tasks}
    if len(tasks) < len(planned):
        found.append(f"only {len(tasks)} of {len(planned)} planned tasks were picked for this analysis")
    everyone = list(dict.fromkeys(job.profile for job in plan.jobs))
    if len(profiles) == len(everyone):
        return [Departure(DepartureKind.PICKED, text) for text in found]
    declared = [(new, old) for new, old in plan.analysis.contrasts or ()]
    pairs = declared or [(name, plan.baseline) for name in everyone if name != plan.baseline]
    lost = [f"{new} vs {old}" for new, old in pairs if new not in profiles or old not in profiles]
    holm = f": Holm's adjustment leaves out {some(lost)}" if lost and len(profiles) > 1 else ""
    found.append(f"only {len(profiles)} of {len(everyone)} planned profiles were picked for this analysis{holm}")
    if baseline != plan.baseline:
        found.append(f"{plan.baseline} was declared as baseline, {baseline} is used")
    if declared and len(lost) == len(declared) and len(profiles) > 1:
        found.append(f"no declared contrast is left: each profile is compared with {baseline}")
    return [Departure(DepartureKind.PICKED, text) for text in found]


def _called(ref: TaskRef, name: str) -> bool:
    return is_task(ref.dataset, ref.id, name)


def ran(cell: CellState) -> bool:
    """Return whether there is something to analyse: it started, whatever became of it, and does not run now."""
    return cell.row is not None and not cell.running and cell.row.state != ReadState.HELD


def _wanted(cells: Sequence[CellState], wanted: Filter) -> list[CellState]:
    """The cells to analyse, by how they ended; with a limit at most so many, of those that ran."""
    found = list(cells)
    if wanted.only == "succeeded":
        found = [cell for cell in found if cell.outcome is Outcome.PASSED]
    elif wanted.only == "failed":
        found = [cell for cell in found if ran(cell) and cell.outcome is not Outcome.PASSED]
    if wanted.limit is not None:
        found = [cell for cell in found if ran(cell)]
        found = random.Random(wanted.seed).sample(found, min(wanted.limit, len(found)))  # noqa: S311
    return found


def pick(batches: Sequence[Batch], wanted: Filter) -> list[SelectedBatch]:
    """The trials that are meant, batch by batch; a batch that has none of the wanted tasks and profiles is left out.

    Raises UserError when no trial is left, and for a name that no batch knows.
    """
    opened = _opened(batches)
    where = ", ".join(str(batch.folder) for batch in batches)
    _check_names(opened, wanted, where)
    parts = [replace(part, view=_selected(part.view, wanted)) for part in opened]
    parts = [part for part in parts if part.view.cells or not part.cells]
    # A limit is over all batches together: sampled as one list, then given back to each.
    everything = [cell for part in parts for cell in part.view.cells]
    kept = {id(cell) for cell in _wanted(everything, wanted)}
    chosen = [replace(part, cells=[cell for cell in part.view.cells if id(cell) in kept]) for part in parts]
    if not any(part.cells for part in chosen):
        how = f"no trial {wanted.only}" if wanted.only and everything else "no trial is left after filtering"
        raise UserError(how, where=where, hint="tbench analyze --list shows the trials")
    if not any(part.trials for part in chosen):
        raise UserError("nothing has run yet", where=where, hint="tbench run, or tbench resume")
    return chosen


def trial_keys(chosen: Sequence[SelectedBatch]) -> set[str]:
    """The chosen trials, as findings name them."""
    return {row.key for part in chosen for row in part.trials}


def analytics_of(batches: Sequence[Batch]) -> Path:
    """Return where the tables of whole batches go: where the batch has them, or for several beside the first of
    them."""
    first = batches[0]
    return first.folder.parent / "analytics" if len(batches) > 1 else first.tables
