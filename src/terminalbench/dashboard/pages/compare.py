"""Any two profiles, or any two batches, compared; and why two profiles of a batch differ.

The latter are the tasks that one solves and the other never, by how the other fails at them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from terminalbench.dashboard.frame import (
    FOREIGN,
    Crumb,
    CsvTable,
    NotFound,
    Page,
    PageRequest,
    Redirect,
    batch_path,
    compare_path,
    pair_path,
    trial_path,
    why_path,
)
from terminalbench.dashboard.pages.batch import changes, reasons_of
from terminalbench.dashboard.pages.verdicts import (
    MANY_TRIALS,
    ShownComparison,
    Side,
    contrast_table,
    picked_verdict,
    task_table,
)
from terminalbench.dashboard.site import Site
from terminalbench.index.pages import BatchFilter, BatchSummary, Window, find_batches
from terminalbench.index.queries import row_outcome
from terminalbench.records.trial import TaskRef

if TYPE_CHECKING:
    from terminalbench.analytics.error_groups import OneSidedTask
    from terminalbench.analytics.model import Contrast, TaskDifference


TASKS_PER_PAGE = 100
EVERY = "~"
"""Stands for every profile that both batches have."""
_OFFERED = 100
_EVERY_TWO = 4


def choose_page(site: Site, ask: PageRequest) -> Page:
    """A form to choose two sides; with both chosen, it leads to the page of their comparison."""
    picked = [ask.text(name).rpartition("|")[::2] for name in ("new", "old")]
    if all(batch and profile for batch, profile in picked):
        for batch, _ in picked:
            site.summary(batch)
        raise Redirect(compare_path(picked[0], picked[1]), {})
    found = find_batches(site.index, BatchFilter(), Window(size=_OFFERED), site.live)
    batches = [b for b in found.items if b.batch != "."]
    return Page(
        title="Compare",
        template="choose.html",
        values={"batches": batches, "every": EVERY, "offered": _offered(batches), "pairs": _within(batches)},
        section="compare/",
    )


def _within(batches: Sequence[BatchSummary]) -> list[tuple[str, str, str]]:
    """Return what an exported site compares: in each batch every two profiles; of many, each with the baseline."""
    found = []
    for batch in batches:
        names = [profile.profile for profile in batch.profiles if not profile.oracle and batch.planned]
        few = len(names) <= _EVERY_TWO
        pairs = [(new, old) for old in names for new in names if new != old and (few or old == batch.baseline)]
        found += [(batch.batch, new, old) for new, old in pairs]
    return found


def _offered(batches: Sequence[BatchSummary]) -> dict[str, tuple[str, str]]:
    """Return what the form begins with: in the newest batch that has several profiles, another one against the
    baseline."""
    for batch in batches:
        names = [profile.profile for profile in batch.profiles if not profile.oracle]
        others = [name for name in names if name != batch.baseline]
        if batch.baseline in names and others:
            return {"new": (batch.batch, others[0]), "old": (batch.batch, batch.baseline)}
    return {}


def compare_page(site: Site, ask: PageRequest) -> Page:
    """The comparison that the path names."""
    parts = ask.parts
    if FOREIGN in (parts["slug"], parts["slug2"]):
        raise NotFound("a folder of Harbor jobs has no plan, so it cannot be compared here")
    new = (f"{parts['slug']}/{parts['number']}", parts["profile"])
    old = (f"{parts['slug2']}/{parts['number2']}", parts["profile2"])
    pairs = _pairs(site, new, old)
    said = picked_verdict(site, pairs) if pairs else ShownComparison(None, "the two batches have no profile in common")
    every, worst_first = ask.text("show") == "all", ask.text("order") == "worst"
    window = Window(ask.number("page"), None if ask.static else TASKS_PER_PAGE)
    contrasts = said.comparison.contrasts if said.comparison else ()
    values: dict[str, Any] = {
        "all_tasks": every,
        "worst_first": worst_first,
        "window": window,
        "listed": [_listed(c, pairs, every=every, worst_first=worst_first) for c in contrasts],
        "new": new,
        "old": old,
        "every": EVERY,
        "said": said,
        "pairs": pairs,
        "reasons_of": _reasons(pairs),
        "why": why_path(new[0], new[1], old[1]) if new[0] == old[0] and EVERY not in (new[1], old[1]) else None,
        "swapped": compare_path(old, new),
        "changes": [_changes(one, other) for one, other in pairs],
    }
    return Page(
        title="Compare",
        template="compare.html",
        values=values,
        crumbs=(Crumb("Compare", "compare/"),),
        tables={"contrasts": lambda: contrast_table(said), "tasks": lambda: task_table(said)},
        document=lambda: {
            "new": new,
            "old": old,
            "comparison": said.comparison,
            "problem": said.problem,
            "profile_differences": [
                {"profile": one, "baseline": other, "changes": found} for one, other, found in values["changes"]
            ],
        },
        section="compare/",
    )


@dataclass(frozen=True)
class ComparedTasks:
    """The tasks of one contrast that are shown, of all, each with the page of two of its trials side by side."""

    tasks: "list[TaskDifference]"
    total: int
    path: Callable[[TaskRef], str | None]


def _listed(
    contrast: "Contrast", pairs: Sequence[tuple[Side, Side]], *, every: bool, worst_first: bool
) -> ComparedTasks:
    tasks = [task for task in contrast.tasks if every or task.difference]
    tasks.sort(key=lambda task: task.difference if worst_first else -task.difference)
    named = {(new.label(old), old.label(new)): (new, old) for new, old in pairs}
    sides = named.get((contrast.new, contrast.old))
    return ComparedTasks(tasks, len(contrast.tasks), lambda task: _beside(sides, task) if sides else None)


def _beside(sides: tuple[Side, Side], task: TaskRef) -> str | None:
    """Two trials at a task, the new one first: where they can, of different outcomes."""
    both = [(one, other) for one in sides[0].trials(task) for other in sides[1].trials(task)]
    unlike = (pair for pair in both if row_outcome(pair[0]) is not row_outcome(pair[1]))
    chosen = next(unlike, both[0] if both else None)
    if chosen is None:
        return None
    return pair_path(*(trial_path(s.summary.batch, row.job, row.name) for s, row in zip(sides, chosen, strict=True)))


def _pairs(site: Site, new: tuple[str, str], old: tuple[str, str]) -> list[tuple[Side, Side]]:
    """The sides that are meant; with every profile, one pair for each that both batches have."""
    sides = []
    for batch, profile in (new, old):
        summary = site.summary(batch)
        view = site.view(summary)
        if view is None:
            raise NotFound(f"{batch} has no plan, so it cannot be compared here")
        known = list(dict.fromkeys(job.profile for job in view.plan.jobs))
        if profile != EVERY and profile not in known:
            raise NotFound(f"{batch} has no profile {profile}")
        sides.append((summary, view, known if profile == EVERY else [profile]))
    (summary, view, names), (other_summary, other_view, other_names) = sides
    if EVERY in (new[1], old[1]) and new[1] == old[1]:
        names = other_names = [name for name in names if name in other_names]
    return [
        (Side(summary, view, one), Side(other_summary, other_view, other))
        for one in names
        for other in other_names
        if one == other or new[1] != old[1] or new[1] != EVERY
    ]


def _reasons(pairs: Sequence[tuple[Side, Side]]) -> dict[str, str]:
    """Return what the sides are called that have a reason, by their profile and by their label."""
    sides = [(side, other) for one, two in pairs for side, other in ((one, two), (two, one))]
    named = [(side, side.label(other), reasons_of(side.view.plan).get(side.profile)) for side, other in sides]
    return {name: why for side, label, why in named if why is not None for name in (side.profile, label)}


def _changes(new: Side, old: Side) -> tuple[str, str, list | None]:
    """Return what differs between the treatments; None when a plan does not hold them."""
    records = [side.view.plan.record(side.profile) for side in (old, new)]
    found = changes(records[0], records[1]) if records[0] is not None and records[1] is not None else None
    return new.label(old), old.label(new), found


MOST_TASKS = 400
_COLUMNS = {
    "task": "task.id", "solved_by": "a", "passed": "a_passed", "measured": "a_measured", "not_by": "b",
    "measured_there": "b_measured", "failure_class": "b_class", "solving_trial": "a_trial", "failing_trial": "b_trial",
    "solving_step": "divergence.a.step", "solving_call": "divergence.a.call", "failing_step": "divergence.b.step",
    "failing_call": "divergence.b.call", "why_none": "why_none",
}  # fmt: skip


def why_page(site: Site, ask: PageRequest) -> Page:
    """The page of two profiles of one batch."""
    new, old = ask.parts["profile"], ask.parts["profile2"]
    summary = site.summary(ask.batch) if ask.parts["slug"] != FOREIGN else None
    view = site.view(summary) if summary is not None else None
    if summary is None or view is None or new == old:
        raise NotFound("this page compares two profiles of a planned batch, and there are none")
    if not {new, old} <= {job.profile for job in view.plan.jobs}:
        raise NotFound(f"{summary.batch} has no profiles {new} and {old}")

    def make() -> "list[OneSidedTask] | None":
        if all(cell.row is None for cell in view.cells):
            return []
        from terminalbench.analytics.error_groups import error_report
        from terminalbench.analytics.selection import Filter

        return error_report([site.batch(summary.batch)], Filter(profiles=(new, old)), (new, old), MOST_TASKS).contrasts

    key = ("why", summary.batch, summary.version, new, old)
    wait = ask.static or ask.data or len(view.cells) <= MANY_TRIALS
    found = site.made(summary.batch, key, make, wait=wait)
    values: dict[str, Any] = {
        "batch": summary.batch,
        "new": new,
        "old": old,
        "reasons_of": reasons_of(view.plan),
        "simulated": summary.simulated,
        "found": found,
        "groups": _groups(found or []),
        "compare": compare_path((summary.batch, new), (summary.batch, old)),
        "trial_of": lambda key: trial_path(summary.batch, *key.split("/", 1)) if "/" in key else None,
        "pair_of": lambda task: _pair(summary.batch, task),
    }
    return Page(
        title=f"Why {new} and {old} differ",
        template="why.html",
        values=values,
        crumbs=(Crumb(summary.batch, batch_path(summary.batch)), Crumb(f"{new} against {old}", values["compare"])),
        tables={"tasks": lambda: CsvTable.of(found or (), _COLUMNS)},
        document=lambda: {"batch": summary.batch, "new": new, "old": old, "tasks": found},
        feed=summary.batch,
        section="compare/",
    )


def _groups(found: "list[OneSidedTask]") -> list[Any]:
    from terminalbench.analytics.error_groups import loss_groups

    return loss_groups(found)


def _pair(batch: str, task: "OneSidedTask") -> str | None:
    """The page of both trials side by side, the one that solved it first."""
    names = [task.a_trial or "", task.b_trial or ""]
    if not all("/" in name for name in names):
        return None
    return pair_path(*(trial_path(batch, *name.split("/", 1)) for name in names))
