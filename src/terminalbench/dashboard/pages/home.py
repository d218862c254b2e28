"""Home: what runs, what ended last and what needs its reader; then the batches, the live ones first."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from terminalbench.dashboard.frame import CsvTable, Page, PageRequest
from terminalbench.dashboard.links import batch_path, night_path, training_path
from terminalbench.dashboard.site import Site
from terminalbench.index.pages import BatchFilter, BatchSummary, Window, find_batches
from terminalbench.locks import living_owner
from terminalbench.overnight.nights import CUT_OFF, NightLook, find_nights, night_stamps
from terminalbench.text.numbers import percent, plural
from terminalbench.text.paths import typed
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
            rates = [f"{p.profile} {percent(p.rate)}" for p in batch.best_first]
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
