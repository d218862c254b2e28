"""Home: what runs, what ended last and what needs its reader, then the batches, the live ones first; the lists of
experiments and trials, and the trend of one experiment over its batches.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from terminalbench.dashboard.frame import (
    Crumb,
    CsvTable,
    NotFound,
    Page,
    PageRequest,
    batch_path,
    night_path,
    training_path,
)
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
from terminalbench.locks import living_owner
from terminalbench.overnight.nights import CUT_OFF, NightLook, find_nights, night_stamps
from terminalbench.records.trial import Outcome
from terminalbench.report.charts.svg import varies
from terminalbench.text.foreign import cut
from terminalbench.text.names import typed
from terminalbench.text.numbers import percent, plural
from terminalbench.trainer.journal import training_lock
from terminalbench.trainer.training import Training, claim, standing, trainings

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

    first = window.number == 1 and not (wanted.text or wanted.slug or wanted.state or by.column)
    now = overview(site, list(trainings(site.project))) if first or ask.data else Overview()
    return Page(
        title="Batches",
        template="home.html",
        values={
            "found": found,
            "overview": now,
            "wanted": wanted,
            "by": by,
            "window": window,
            "states": STATES,
            "live": {key: site.live_state(key) for key in live},
        },
        tables={"batches": lambda: CsvTable.of(all_found(), COLUMNS)},
        document=lambda: {"overview": now, "batches": all_found(), "live": list(live)},
        feed="",
        section="",
    )


_ENDED, _NEEDS = 4, 6
"""Lines of each part at most."""


@dataclass(frozen=True)
class HomeLine:
    """A batch, a night or a training: its page, what there is to say of it, and since when."""

    kind: str
    name: str
    path: str
    said: str
    time: str | None = None
    command: str | None = None


@dataclass(frozen=True)
class Overview:
    """What a reader looks for first; `needs` are worst first, each with a command where one helps."""

    running: list[HomeLine] = field(default_factory=list)
    ended: list[HomeLine] = field(default_factory=list)
    needs: list[HomeLine] = field(default_factory=list)


def overview(site: Site, known: list[Training]) -> Overview:
    """Return what runs, what ended last and what waits for a person, over batches, nights and trainings."""
    nights: list[NightLook] = site.kept(("nights", *night_stamps(site.root)), lambda: find_nights(site.root))
    at_work, idle = list[Training](), list[Training]()
    for one in known:
        (idle if living_owner(training_lock(one.folder)) is None else at_work).append(one)
    running = [
        *_live_batches(site),
        *(_night_line(night, _progress(night)) for night in nights if night.status == "running"),
        *(_training_line(one, one.under_way or _standing(one)) for one in at_work),
    ]
    ended = [*_ended_batches(site), *_ended_nights(nights), *_ended_trainings(idle)]
    ended.sort(key=lambda line: line.time or "", reverse=True)
    paused = (one for one in idle if len(one.nights) < one.planned)
    needs = [
        *_waiting_nights(nights),
        *(_training_line(one, _standing(one), one.run_command) for one in paused),
        *_incomplete(site),
    ]
    return Overview(running, ended[:_ENDED], needs[:_NEEDS])


def _live_batches(site: Site) -> Iterator[HomeLine]:
    for key in site.live:
        state = site.live_state(key)
        if state is not None:
            of = "" if state.planned is None else f" of {state.planned:,}"
            said = f"{state.done:,}{of} trials ended, {len(state.running):,} running"
            yield HomeLine("batch", key, batch_path(key), said, state.started_at)


def _ended_batches(site: Site) -> Iterator[HomeLine]:
    newest = find_batches(site.index, BatchFilter(), Window(size=_ENDED + len(site.live)), site.live).items
    for batch in newest:
        if batch.batch not in site.live and batch.trials:
            rates = [f"{cut(p.reason or p.profile, 40)} {percent(p.rate)}" for p in batch.best_first]
            more = f" and {len(rates) - 3} more" if len(rates) > 3 else ""
            yield HomeLine(
                "batch", _batch_name(batch), batch_path(batch.batch), ", ".join(rates[:3]) + more,
                batch.last_at or batch.created_at,
            )  # fmt: skip


def _incomplete(site: Site) -> Iterator[HomeLine]:
    """The newest batch of each experiment, where some of its trials have no verdict and none runs."""
    newest = find_batches(site.index, BatchFilter(), Window(size=PAGE_SIZE), site.live).items
    last = {batch.slug: batch for batch in sorted(newest, key=lambda batch: batch.number)}
    for batch in sorted(last.values(), key=lambda batch: batch.created_at or "", reverse=True):
        if batch.batch not in (".", *site.live) and batch.planned and batch.not_measured:
            said = f"{batch.not_measured:,} of {plural(batch.planned, 'trial')} without a verdict"
            command = f"tbench resume {typed(site.batch(batch.batch).folder)}"
            yield HomeLine("batch", _batch_name(batch), batch_path(batch.batch), said, batch.created_at, command)


def _batch_name(batch: BatchSummary) -> str:
    return batch.batch if batch.batch != "." else "Harbor jobs"


def _ended_nights(nights: list[NightLook]) -> Iterator[HomeLine]:
    for night in nights[:_ENDED]:
        if night.status != "running":
            said = night.summary.headlines[0] if night.summary and night.summary.headlines else _progress(night)
            yield _night_line(night, said)


def _waiting_nights(nights: list[NightLook]) -> Iterator[HomeLine]:
    """Nights that were cut off, and the alerts of the newest."""
    for place, night in enumerate(nights):
        summary = night.summary
        if night.status == CUT_OFF:
            yield _night_line(
                night, f"cut off, {_progress(night)}", f"tbench overnight --resume {typed(night.folder.folder)}"
            )
        elif place == 0 and summary is not None and summary.alerts:
            yield _night_line(night, f"{plural(len(summary.alerts), 'alert')}: {summary.alerts[0]}")


def _night_line(night: NightLook, said: str, command: str | None = None) -> HomeLine:
    return HomeLine("night", night.config.run_id, night_path(night.name), said, night.config.created_at, command)


def _progress(night: NightLook) -> str:
    summary, planned = night.summary, night.config.iterations
    of = "" if planned is None else f" of {planned:,}"
    return f"{summary.over:,}{of} iterations over" if summary is not None else "no iteration has ended"


def _standing(one: Training) -> str:
    return standing(one.nights, one.planned, one.lineage)


def _ended_trainings(idle: list[Training]) -> Iterator[HomeLine]:
    for one in idle:
        if one.nights:
            crowned = one.lineage.crowned
            yield _training_line(one, claim(crowned[-1], one.lineage) if crowned else _standing(one))


def _training_line(one: Training, said: str, command: str | None = None) -> HomeLine:
    time = one.nights[-1].time if one.nights else one.declared.declared_at if one.declared is not None else None
    return HomeLine("training", one.slug, training_path(one.slug), said, time, command)


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
