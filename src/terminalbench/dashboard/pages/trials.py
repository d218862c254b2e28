"""Trials of all batches: searched, filtered, a page at a time."""

from terminalbench.dashboard.frame import CsvTable, Page, PageRequest
from terminalbench.dashboard.site import Site
from terminalbench.index.pages import Window
from terminalbench.index.queries import TrialRow, trial_columns
from terminalbench.index.trial_pages import TrialFilter, choices, failure_class, find_trials
from terminalbench.records.trial import Outcome

PAGE_SIZE = 100
COLUMNS = (
    "batch", "job", "trial", "profile", "dataset", "task", "attempt", "state", "outcome", "reward", "error_class",
    "error_message", "agent", "agent_version", "model", "started_at", "finished_at", "elapsed_sec", "agent_steps",
    "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "cost_usd", "superseded", "simulated",
)  # fmt: skip
OUTCOMES = (*(o.value for o in Outcome if o is not Outcome.NOT_RUN), "unfinished")


def trials_page(site: Site, ask: PageRequest) -> Page:
    """The list of trials."""
    wanted = TrialFilter(
        ask.text("q"), ask.text("batch"), ask.text("profile"), ask.text("task"), ask.text("outcome"), ask.text("error")
    )
    window = Window(ask.number("page"), None if ask.static else PAGE_SIZE)
    by = ask.order()
    found = find_trials(site.index, wanted, window, by)

    def table() -> CsvTable:
        return trial_table(find_trials(site.index, wanted, Window(size=None), by).items)

    names = {"profile": "profile", "task": "task", "error": "error_class", "batch": "batch"}
    return Page(
        title="Trials",
        template="trials.html",
        values={
            "found": found,
            "wanted": wanted,
            "by": by,
            "failure": lambda batch, row: failure_class(site.index, batch, row),
            "window": window,
            "outcomes": OUTCOMES,
            "is_oracle": site.is_oracle,
            "choices": {} if ask.static else {name: choices(site.index, column) for name, column in names.items()},
            "elapsed": lambda row: row.trial and row.trial.wall_sec,
        },
        tables={"trials": table},
        document=lambda: [dict(zip(COLUMNS, row, strict=True)) for row in table().rows],
        section="trials/",
    )


def trial_table(found: list[tuple[str, TrialRow]]) -> CsvTable:
    """Trials as rows of a file."""
    return CsvTable(COLUMNS, [_row(batch, row) for batch, row in found])


def _row(batch: str, row: TrialRow) -> list[object]:
    values = trial_columns(row) | {
        "batch": batch,
        "profile": row.profile,
        "superseded": row.run_again,
        "attempt": row.attempt,
    }
    values |= {"elapsed_sec": row.trial.wall_sec} if row.trial else {"error_message": row.reason}
    return [values.get(name) for name in COLUMNS]
