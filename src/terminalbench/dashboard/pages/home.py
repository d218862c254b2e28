"""Home: the batches, the live ones first, then the newest."""

from terminalbench.dashboard.frame import CsvTable, Page, PageRequest
from terminalbench.dashboard.site import Site
from terminalbench.index.pages import BatchFilter, BatchSummary, Window, find_batches

PAGE_SIZE = 50
STATES = ("live", "complete", "incomplete")
_SAME = ("name", "created_at", "planned", "trials", "passed", "failed", "not_measured", "cost_usd")
COLUMNS = {
    "batch": "batch", "experiment": "slug", "number": "number", **{name: name for name in _SAME},
    "cost_unknown_trials": "cost_unknown", "simulated": "simulated", "profiles": "profile_names",
    "budget_usd": "budget_usd", "over_usd": "over_usd",
}  # fmt: skip


def home_page(site: Site, ask: PageRequest) -> Page:
    """The list of batches, searched and filtered."""
    state = ask.text("state")
    wanted = BatchFilter(ask.text("q"), ask.text("slug"), state if state in STATES else "")
    live = site.live
    window = Window(ask.number("page"), None if ask.static else PAGE_SIZE)
    by = ask.order()
    found = find_batches(site.index, wanted, window, live, by)
    everything = Window(size=None)

    def all_found() -> list[BatchSummary]:
        return find_batches(site.index, wanted, everything, live, by).items

    return Page(
        title="Batches",
        template="home.html",
        values={
            "found": found,
            "wanted": wanted,
            "by": by,
            "window": window,
            "states": STATES,
            "live": {key: site.live_state(key) for key in live},
        },
        tables={"batches": lambda: CsvTable.of(all_found(), COLUMNS)},
        document=lambda: {"batches": all_found(), "live": list(live)},
        feed="",
        section="",
    )
