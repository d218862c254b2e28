"""The lists of experiments and of trials, and the trend of one experiment over its batches."""

from collections.abc import Sequence
from dataclasses import dataclass

from terminalbench.dashboard.frame import Crumb, CsvTable, NotFound, Page, PageRequest
from terminalbench.dashboard.site import Site
from terminalbench.index.pages import (
    BatchFilter,
    BatchSummary,
    ExperimentSummary,
    TrialFilter,
    Window,
    choices,
    failure_class,
    find_batches,
    find_experiments,
    find_trials,
)
from terminalbench.index.queries import TrialRow, trial_columns
from terminalbench.index.totals import ProfileTotals
from terminalbench.records.trial import Outcome
from terminalbench.report.charts.svg import varies

PAGE_SIZE = 50
_TREND_BATCHES = 60
_EXPERIMENT = {name: name for name in ExperimentSummary.__struct_fields__}
_COLUMNS = ("batch", "created_at", "profile", "profile_id", "planned", "measured", "passed", "rate", "cost_usd")


def experiments_page(site: Site, ask: PageRequest) -> Page:
    """The list of experiments."""
    text = ask.text("q")
    window = Window(ask.number("page"), None if ask.static else PAGE_SIZE)
    by = ask.order()
    found = find_experiments(site.index, text, window, by)

    def everything() -> list:
        return find_experiments(site.index, text, Window(size=None), by).items

    return Page(
        title="Experiments",
        template="experiments.html",
        values={"found": found, "window": window, "text": text, "by": by},
        tables={"experiments": lambda: CsvTable.of(everything(), _EXPERIMENT)},
        document=everything,
        feed="",
        section="experiments/",
    )


@dataclass(frozen=True)
class Trend:
    """One profile over the batches, the oldest first; None where a batch does not have it."""

    profile: str
    points: Sequence[ProfileTotals | None]

    @property
    def width(self) -> int:
        """Return the width of its picture."""
        return max(60, 14 * len(self.points))

    def plotted(self) -> list[tuple[int, float]]:
        """Return where its points lie in a picture 40 high: 0 % at 36, 100 % at 4."""
        rates = [(position, point.rate) for position, point in enumerate(self.points) if point is not None]
        return [(14 * position + 7, round(36 - 32 * rate, 1)) for position, rate in rates if rate is not None]

    @property
    def moves(self) -> bool:
        """Return whether there is anything to draw."""
        return varies(point.rate for point in self.points if point is not None)

    def treatment_changed(self, position: int) -> bool:
        """Return whether the profile is not what it was the last time it ran; what its memory has learned is no
        change."""
        before = [p for p in self.points[:position] if p is not None]
        here = self.points[position]
        return bool(before) and here is not None and here.policy_id != before[-1].policy_id


def experiment_page(site: Site, ask: PageRequest) -> Page:
    """One experiment: every batch, and how each profile did from batch to batch."""
    slug = ask.parts["slug"]
    by = ask.order()
    found = find_batches(site.index, BatchFilter(slug=slug), Window(size=None), site.live, by)
    if not found.items:
        raise NotFound(f"there is no experiment {slug}")
    oldest_first = sorted(found.items, key=lambda batch: batch.number)
    shown = oldest_first[-_TREND_BATCHES:]
    return Page(
        title=slug,
        template="experiment.html",
        values={
            "slug": slug,
            "name": found.items[0].name,
            "found": found,
            "by": by,
            "shown": shown,
            "trends": trends(shown),
            "live": {key: site.live_state(key) for key in site.live},
        },
        crumbs=(Crumb("Experiments", "experiments/"),),
        tables={"trend": lambda: CsvTable(_COLUMNS, [row for batch in oldest_first for row in _rows(batch)])},
        document=lambda: {"experiment": slug, "batches": oldest_first},
        feed="",
        section="experiments/",
    )


def trends(batches: Sequence[BatchSummary]) -> list[Trend]:
    """Each profile over the batches, in the order they first appear."""
    names = dict.fromkeys(counts.profile for batch in batches for counts in batch.profiles)
    return [
        Trend(name, [next((c for c in batch.profiles if c.profile == name), None) for batch in batches])
        for name in names
    ]


def _rows(batch: BatchSummary) -> list[tuple[object, ...]]:
    return [
        (batch.batch, batch.created_at, c.profile, c.profile_id, c.planned, c.measured, c.passed, c.rate, c.cost_usd)
        for c in batch.profiles
    ]


TRIALS_PER_PAGE = 100
_TRIAL_COLUMNS = (
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
    window = Window(ask.number("page"), None if ask.static else TRIALS_PER_PAGE)
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
        document=lambda: [dict(zip(_TRIAL_COLUMNS, row, strict=True)) for row in table().rows],
        section="trials/",
    )


def trial_table(found: list[tuple[str, TrialRow]]) -> CsvTable:
    """Trials as rows of a file."""
    return CsvTable(_TRIAL_COLUMNS, [_trial_row(batch, row) for batch, row in found])


def _trial_row(batch: str, row: TrialRow) -> list[object]:
    values = trial_columns(row) | {
        "batch": batch,
        "profile": row.profile,
        "superseded": row.run_again,
        "attempt": row.attempt,
    }
    values |= {"elapsed_sec": row.trial.wall_sec} if row.trial else {"error_message": row.reason}
    return [values.get(name) for name in _TRIAL_COLUMNS]
