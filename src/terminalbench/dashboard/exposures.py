"""Which trials were shown lessons: those of the results folder that is shown, and of the nights in it."""

import sqlite3
from collections.abc import Generator
from contextlib import closing

from msgspec.structs import replace

from terminalbench.dashboard.site import Site
from terminalbench.index.exposures import LessonCounts, LessonLook, add_counts, lesson_counts, lesson_trials
from terminalbench.index.pages import Window
from terminalbench.index.scan import scan_all
from terminalbench.index.store import open_for_reading
from terminalbench.index.trial_pages import find_trial
from terminalbench.overnight.nights import night_results


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
