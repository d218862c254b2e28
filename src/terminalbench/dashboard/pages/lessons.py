"""Lessons: the list of them, and one: its text, what supports it, whom it was shown, its effect, its history."""

import sqlite3
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from terminalbench.analytics.atif import UnreadableTrajectory
from terminalbench.archivist.entries import MemoryEntry
from terminalbench.archivist.inventory import LessonOrder, history, page_of_lessons
from terminalbench.archivist.store import memory_of, open_store
from terminalbench.archivist.tables import find_lesson
from terminalbench.archivist.utility import HARM, chance_of_harm
from terminalbench.dashboard.frame import (
    LESSONS,
    Crumb,
    CsvTable,
    NotFound,
    Page,
    PageRequest,
    night_results_path,
    steps_path,
    trial_path,
)
from terminalbench.dashboard.pages.steps import places
from terminalbench.dashboard.site import Site
from terminalbench.index.exposures import LessonCounts, LessonLook, add_counts, lesson_counts, lesson_trials
from terminalbench.index.pages import ListPage, Window, find_trial
from terminalbench.index.scan import scan_all
from terminalbench.index.store import open_for_reading
from terminalbench.overnight.nights import night_results
from terminalbench.records.lesson import Evidence, Lesson, LessonState, Utility

PAGE_SIZE = 50
_TRIALS = 50
_ENTRIES = 100
_WIDE = 1.96
_COLUMNS: Mapping[str, str | Callable[[Lesson], Any]] = {
    "lesson": "id", "state": "state", "kind": "kind", "scope": "scope", "scope_value": "scope_value",
    "tags": lambda lesson: " ".join(lesson.tags), "importance": "importance", "effect": "utility.mean",
    "effect_sd": "utility.sd", "trials": "utility.n", "author": "author", "created_at": "created_at",
    "updated_at": "updated_at", "superseded_by": "superseded_by", "do": "do", "avoid": "avoid", "reason": "reason",
}  # fmt: skip
_TRIAL_COLUMNS = {name: name for name in LessonLook.__struct_fields__}


@dataclass(frozen=True)
class Effect:
    """What is believed of a lesson's effect: its mean, the ends of the 95 % interval, and the chance of harm."""

    mean: float
    low: float
    high: float
    harm: float
    trials: int

    @classmethod
    def of(cls, belief: Utility) -> "Effect":
        """Return the effect of this mean and standard deviation."""
        wide = _WIDE * belief.sd
        return cls(belief.mean, belief.mean - wide, belief.mean + wide, chance_of_harm(belief), belief.n)


@dataclass(frozen=True)
class LessonLine:
    """A lesson in the list."""

    lesson: Lesson
    effect: Effect | None
    counts: list[LessonCounts]


@dataclass(frozen=True)
class Support:
    """A piece of evidence: the page of its trial and of each step, where they are known; else the night that has it."""

    evidence: Evidence
    trial: str | None
    steps: Sequence[tuple[int, str | None, str]]
    night: str | None = None


def lessons_page(site: Site, ask: PageRequest) -> Page:
    """The list of lessons."""
    text = ask.text("q")
    state = next((one for one in LessonState if one == ask.text("state")), None)
    order = next((one for one in LessonOrder if one == ask.text("order")), LessonOrder.NEWEST)
    window = Window(ask.number("page"), None if ask.static else PAGE_SIZE)
    with open_store(memory_of(site.root)) as store:
        found = page_of_lessons(store, text, state, order, window.limit, window.offset)
        problems, behind, empty = store.problems(), store.behind, not store.place.exists
    counts = counts_of(site)

    def everything() -> list[Lesson]:
        with open_store(memory_of(site.root)) as store:
            return page_of_lessons(store, text, state, order, Window(size=None).limit).lessons

    lines = [LessonLine(one, _effect(one), counts.get(one.id, [])) for one in found.lessons]
    return Page(
        title="Lessons",
        template="lessons.html",
        values={
            "found": ListPage(lines, found.total),
            "window": window,
            "wanted": {"q": text, "state": state or "", "order": "" if order is LessonOrder.NEWEST else order},
            "states": list(LessonState),
            "orders": [one for one in LessonOrder if one is not LessonOrder.NEWEST],
            "problems": problems,
            "behind": behind,
            "empty": empty,
            "folder": memory_of(site.root),
        },
        tables={"lessons": lambda: CsvTable.of(everything(), _COLUMNS)},
        document=everything,
        feed=LESSONS,
        section=LESSONS,
    )


def lesson_page(site: Site, ask: PageRequest) -> Page:
    """One lesson."""
    name = ask.parts["lesson"]
    with open_store(memory_of(site.root)) as store:
        lesson = find_lesson(store.connection, name)
        if lesson is None:
            raise NotFound(f"there is no lesson {name}")
        entries = history(store, name)
        behind = store.behind
    counts = counts_of(site, name).get(name, [])
    window = Window(ask.number("page"), None if ask.static else _TRIALS)
    values: dict[str, Any] = {
        "lesson": lesson,
        "effect": _effect(lesson),
        "harm": HARM,
        "counts": counts,
        "trials": ListPage(trials_of(site, name, window), sum(one.eligible for one in counts)),
        "window": window,
        "support": [_support(site, one) for one in lesson.evidence],
        "entries": entries[:_ENTRIES],
        "entry_count": len(entries),
        "took": _took(lesson, entries),
        "behind": behind,
    }
    return Page(
        title=f"Lesson {name}",
        template="lesson.html",
        values=values,
        crumbs=(Crumb("Lessons", LESSONS),),
        tables={
            "trials": lambda: CsvTable.of(trials_of(site, name, Window(size=None)), _TRIAL_COLUMNS),
        },
        document=lambda: {"lesson": lesson, "exposure": counts, "log": entries},
        feed=LESSONS,
        section=LESSONS,
    )


def _effect(lesson: Lesson) -> Effect | None:
    return Effect.of(lesson.utility) if lesson.utility is not None else None


def _took(lesson: Lesson, entries: list[MemoryEntry]) -> list[str]:
    """The lessons that it took up, by its log."""
    return list(dict.fromkeys(name for entry in entries if entry.id == lesson.id for name in entry.absorbed))


def _support(site: Site, evidence: Evidence) -> Support:
    """Evidence with links to the trial's page and steps, where the index has the trial."""
    unknown = [(step, None, "") for step in evidence.steps]
    parts = evidence.trial.split("/")
    if len(parts) != 4:
        return Support(evidence, None, unknown)
    batch, job, name = "/".join(parts[:2]), parts[2], parts[3]
    night = None
    try:
        row = site.trial(batch, job, name)
    except NotFound:
        night = night_with(site, batch, job, name)
        if night is None:
            return Support(evidence, None, unknown)
        site, _ = site.within(night_results_path(night))
        row = site.trial(batch, job, name)
    path = site.prefix + trial_path(batch, job, name)
    files = row.trial.trajectory_paths if row.trial is not None else []
    try:
        file = files[0] if files else f"{name}/agent/trajectory.json"
        where = places(site.trajectory((*site.trial_names(batch, row)[:-1], *file.split("/"))), evidence.steps)
    except UnreadableTrajectory:
        return Support(evidence, path, unknown, night)
    steps = [
        (step, steps_path(path, 1, where[step][0]), where[step][1]) if step in where else (step, None, "")
        for step in evidence.steps
    ]
    return Support(evidence, path, steps, night)


def counts_of(site: Site, lesson: str | None = None) -> dict[str, list[LessonCounts]]:
    """The counts of each lesson that was ever eligible, or of one; a mode each."""
    return add_counts(lesson_counts(index, lesson) for _, index in _each_index(site))


def trials_of(site: Site, lesson: str, window: Window) -> list[LessonLook]:
    """The trials for which a lesson was eligible, newest first; those of a night are marked with its name."""
    last = window.offset + window.limit
    found = [
        replace(one, night=night) for night, index in _each_index(site) for one in lesson_trials(index, lesson, last)
    ]
    return sorted(found, key=lambda one: one.started_at or "", reverse=True)[window.offset : last]


def night_with(site: Site, batch: str, job: str, name: str) -> str | None:
    """The night in the results folder that has a trial; None where none has it."""
    found = (night for night, index in _each_index(site) if night and find_trial(index, batch, job, name) is not None)
    return next(found, None)


def _each_index(site: Site) -> Generator[tuple[str | None, sqlite3.Connection]]:
    """The index of the results folder, then that of each night; a night brings its own up to date while it goes on."""
    yield None, site.index
    for night, folder in night_results(site.root).items():
        if site.first_time(("night", folder)):
            scan_all(folder)
        with closing(open_for_reading(folder)) as index:
            yield night, index
