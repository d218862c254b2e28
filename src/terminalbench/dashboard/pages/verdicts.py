"""What the statistics say of a batch, or of two profiles picked by hand, and the charts of a batch of SWE-Bench Pro.

The numbers come from `analytics`; the charts are those of `tbench swebench-pro visualize`, each run a link.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from terminalbench.dashboard.frame import Crumb, CsvTable, Links, NotFound, Page, PageRequest, batch_path, trial_path
from terminalbench.dashboard.site import Site
from terminalbench.errors import TbenchError, UserError
from terminalbench.experiments.plan import Plan
from terminalbench.index.pages import BatchSummary
from terminalbench.index.queries import BatchView, TrialRow
from terminalbench.live.processes import resume_places
from terminalbench.records.trial import TaskRef

if TYPE_CHECKING:
    from terminalbench.analytics.model import Comparison
    from terminalbench.swebench_pro.rows import ResultRow
    from terminalbench.swebench_pro.visualize import Charts


CONTRAST_COLUMNS = {
    "new": "new", "old": "old", "metric": "metric", "rule": "rule", "verdict": "verdict",
    "difference": "estimate.difference", "low": "estimate.interval.low", "high": "estimate.interval.high",
    "level": "estimate.interval.level", "p": "estimate.p", "p_adjusted": "p_adjusted", "tasks": "estimate.tasks",
    "unit": "unit", "units": "estimate.units",
    "trials": "estimate.trials", "wins": "estimate.wins", "losses": "estimate.losses", "ties": "estimate.ties",
    "difference_other_way": "other_way.difference", "smallest_detectable": "smallest_detectable",
    "trials_needed": "trials_needed", "sentence": "sentence",
}  # fmt: skip


@dataclass(frozen=True)
class ShownComparison:
    """A comparison, or why there is none; `waiting`: it is being made."""

    comparison: "Comparison | None"
    problem: str | None = None
    waiting: bool = False


MANY_TRIALS = 2000
"""A batch of more trials is shown before its comparison is made."""


def batch_verdict(site: Site, summary: BatchSummary, view: BatchView, *, wait: bool = True) -> ShownComparison:
    """The declared contrasts of one batch; of one with many trials, unless one is to `wait`, when they are there."""
    places = resume_places([site.batch(summary.batch)], [view])

    def make() -> ShownComparison:
        from terminalbench.analytics.compare import compare_views
        from terminalbench.analytics.pool import unpooled
        from terminalbench.analytics.settings import ComparisonRequest

        try:
            alone = unpooled([site.batch(summary.batch)])
            return ShownComparison(compare_views([view], ComparisonRequest(places=places, departures=alone)))
        except TbenchError as error:
            return ShownComparison(None, str(error))

    running = tuple(place for place, cell in enumerate(view.cells) if cell.running)
    key = ("verdict", summary.batch, summary.version, view.live, running, *places.values())
    waiting = ShownComparison(None, waiting=True)
    return site.made(summary.batch, key, make, waiting, wait=wait or len(view.cells) <= MANY_TRIALS)


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a profile of a batch."""

    summary: BatchSummary
    view: BatchView
    profile: str

    @cached_property
    def _by_task(self) -> dict[TaskRef, list[TrialRow]]:
        found: dict[TaskRef, list[TrialRow]] = {}
        for cell in self.view.cells:
            if cell.profile == self.profile and cell.row is not None:
                found.setdefault(cell.task, []).append(cell.row)
        return found

    def trials(self, task: TaskRef) -> list[TrialRow]:
        """Its trials at a task, those that count."""
        return self._by_task.get(task, [])

    def label(self, other: "Side") -> str:
        """Return what to call it beside the other: the profile, with its batch where the batches differ."""
        same_batch = self.summary.batch == other.summary.batch
        return self.profile if same_batch else f"{self.profile} ({self.summary.batch})"


def picked_verdict(site: Site, pairs: Sequence[tuple[Side, Side]]) -> ShownComparison:
    """Each (new, old) pair compared, under the settings the old side's batch declared."""
    key = tuple((s.summary.batch, s.summary.version, s.profile) for pair in pairs for s in pair)
    views = {s.summary.batch: s.view for pair in pairs for s in pair}
    places = resume_places([site.batch(name) for name in views], [*views.values()])

    def make() -> ShownComparison:
        from terminalbench.analytics.compare import compare
        from terminalbench.analytics.rows import rows_of
        from terminalbench.analytics.settings import settings_of

        rows, profiles, contrasts = {}, {}, []
        try:
            for new, old in pairs:
                labels = (new.label(old), old.label(new))
                for side, label in zip((new, old), labels, strict=True):
                    own = [row for row in rows_of([side.view]) if row.profile == side.profile]
                    rows[label] = [msgspec.structs.replace(row, profile=label) for row in own]
                    record = side.view.plan.record(side.profile)
                    profiles[label] = record.content if record else {}
                contrasts.append(labels)
            declared = settings_of([pairs[0][1].view])
            settings = msgspec.structs.replace(
                declared,
                baseline=contrasts[0][1],
                contrasts=tuple(contrasts),
                profiles=profiles,
                departures=(),
                hypothesis=None,
                places=places,
            )
            return ShownComparison(compare([row for found in rows.values() for row in found], settings))
        except TbenchError as error:
            return ShownComparison(None, str(error))

    return site.kept(("picked", key, *places.values()), make)


def contrast_table(said: ShownComparison) -> CsvTable:
    """The contrasts as rows of a file."""
    return CsvTable.of(said.comparison.contrasts if said.comparison else (), CONTRAST_COLUMNS)


def task_table(said: ShownComparison) -> CsvTable:
    """Every task of every contrast."""
    columns = ("new", "old", "dataset", "task", "family", "new_mean", "old_mean", "difference")
    contrasts = said.comparison.contrasts if said.comparison else ()
    rows = [
        (c.new, c.old, t.task.dataset, t.task.id, t.task.family, t.new, t.old, t.difference)
        for c in contrasts
        for t in c.tasks
    ]
    return CsvTable(columns, rows)


def has_instances(plan: Plan) -> bool:
    """Return whether a plan is one of SWE-Bench Pro: of its command, or with tasks named as its instances are."""
    from terminalbench.swebench_pro.convert import short_id
    from terminalbench.swebench_pro.projections import SLUG

    return plan.slug == SLUG or any(short_id(task.ref.id) != task.ref.id for job in plan.jobs[:1] for task in job.tasks)


def charts_page(site: Site, ask: PageRequest) -> Page:
    """The page of the charts of one batch."""
    summary = site.summary(ask.batch)
    view = site.view(summary)
    if view is None or not has_instances(view.plan):
        raise NotFound(f"{summary.batch} has no instances of SWE-Bench Pro to draw")

    def link(row: "ResultRow") -> str | None:
        key = (row.trial or "").removeprefix(f"{summary.batch}/")
        if key == row.trial or "/" not in key:
            return None
        return Links(ask.path, static=ask.static).to(trial_path(summary.batch, *key.split("/", 1)))

    def make() -> "Charts | str":
        from terminalbench.swebench_pro.projections import sources
        from terminalbench.swebench_pro.visualize import make_charts

        try:
            return make_charts([run.row for run in sources(site.batch(summary.batch), {}, view)], link=link)
        except UserError as error:
            return str(error)

    key = ("swebench-pro", summary.batch, summary.version, ask.static)
    wait = ask.static or ask.data or len(view.cells) <= MANY_TRIALS
    found = site.made(summary.batch, key, make, wait=wait)
    drawn = found if found is not None and not isinstance(found, str) else None
    values: dict[str, Any] = {
        "batch": summary.batch,
        "simulated": summary.simulated,
        "waiting": found is None,
        "problem": found if isinstance(found, str) else None,
        "notes": drawn.notes if drawn is not None else (),
        "charts": drawn.charts if drawn is not None else (),
    }
    return Page(
        title=f"Charts of {summary.slug} {summary.number}",
        template="charts.html",
        values=values,
        crumbs=(Crumb(f"{summary.slug} {summary.number}", batch_path(summary.batch)),),
        document=lambda: {
            "batch": summary.batch,
            "problem": values["problem"],
            "notes": values["notes"],
            "charts": values["charts"],
            "comparison": drawn.comparison if drawn is not None else None,
        },
        feed=summary.batch,
    )
