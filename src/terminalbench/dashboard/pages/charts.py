"""The charts of a batch of SWE-Bench Pro: the same that `tbench swebench-pro visualize` draws, each run a link."""

from typing import TYPE_CHECKING, Any

from terminalbench.dashboard.frame import Crumb, NotFound, Page, PageRequest
from terminalbench.dashboard.links import Links, batch_path, trial_path
from terminalbench.dashboard.pages.verdicts import MANY_TRIALS
from terminalbench.dashboard.site import Site
from terminalbench.errors import UserError
from terminalbench.experiments.plan import Plan

if TYPE_CHECKING:
    from terminalbench.swebench_pro.rows import ResultRow
    from terminalbench.swebench_pro.visualize import Charts


def has_instances(plan: Plan) -> bool:
    """Return whether a plan is one of SWE-Bench Pro: of its command, or with tasks named as its instances are."""
    from terminalbench.swebench_pro.instances import short_id
    from terminalbench.swebench_pro.output import SLUG

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
