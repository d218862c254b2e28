"""Why two profiles of a batch differ: the tasks that one solves and the other never, by how the other fails at them."""

from typing import TYPE_CHECKING, Any

from terminalbench.dashboard.frame import FOREIGN, Crumb, CsvTable, NotFound, Page, PageRequest
from terminalbench.dashboard.links import batch_path, compare_path, pair_path, trial_path
from terminalbench.dashboard.pages.verdicts import MANY_TRIALS
from terminalbench.dashboard.site import Site

if TYPE_CHECKING:
    from terminalbench.analytics.error_groups import OneSidedTask

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
    found = site.kept(key, make) if wait else site.made_later(summary.batch, key, make, None)
    values: dict[str, Any] = {
        "batch": summary.batch,
        "new": new,
        "old": old,
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
