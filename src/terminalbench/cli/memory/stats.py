"""`tbench memory stats`."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

import click

from terminalbench.cli.memory.options import on_memory, roots_of
from terminalbench.cli.options import json_option, results_option
from terminalbench.cli.output import print_json
from terminalbench.errors import EXIT_INCOMPLETE, EXIT_OK

if TYPE_CHECKING:
    from terminalbench.archivist.gains import Gain
    from terminalbench.archivist.inventory import Stats
    from terminalbench.archivist.store import Store
    from terminalbench.records.lesson import Lesson

_MOST = 10
_WIDTH = 80


@click.command("stats")
@results_option
@on_memory()
@json_option
def command(store: "Store", results: Path | None, as_json: bool) -> int:
    """Count what memory holds, and what lessons gain: transfer and recall apart, each against its control.

    Gains are over every batch and every night of the results folder. Exit code 3 when a part of the log cannot be read.
    """
    from msgspec.structs import asdict

    from terminalbench.archivist.effects import retired_by_effect
    from terminalbench.archivist.gains import exposed
    from terminalbench.archivist.inventory import LessonFilter, each_lesson, stats, why_nothing_is_known
    from terminalbench.archivist.store import ProblemKind

    found = stats(store)
    seen = exposed(roots_of(store, results))
    gained = seen.gains()
    unknown = why_nothing_is_known(found, len(seen.trials))
    harmful = retired_by_effect(store)
    lost = any(problem.kind is ProblemKind.LOST for problem in found.problems)
    if as_json:
        print_json(
            {
                **asdict(found),
                "nothing_known": unknown,
                "gains": gained,
                "retired_by_effect": [one.id for one in harmful],
            }
        )
        return EXIT_INCOMPLETE if lost else EXIT_OK
    measured = [one for one in each_lesson(store, LessonFilter()) if one.effects]
    parts = [
        _counts(found),
        "\n".join(wrap(unknown or "", _WIDTH)),
        _effects(measured),
        _gains(gained),
        _harmful(harmful),
    ]
    click.echo("\n\n".join(filter(None, parts)))
    for problem in found.problems:
        if problem.kind not in (ProblemKind.LOST, ProblemKind.EDITED):  # those were said already
            click.echo(f"note: {store.place.log}: {problem.what}", err=True)
    return EXIT_INCOMPLETE if lost else EXIT_OK


def _counts(found: "Stats") -> str:
    from terminalbench.text.numbers import plural
    from terminalbench.text.table import columns

    entries = plural(found.entries, "operation")
    parts = [f"{plural(found.lessons, 'lesson')}, {found.measured} with a measured effect; {entries} in the log"]
    tables = (found.states, found.kinds, found.scopes, found.tags, found.authors)
    for title, counts in zip(("state", "kind", "scope", "tag", "author"), tables, strict=True):
        if counts:
            rows = [[name, f"{number:,}"] for name, number in list(counts.items())[:_MOST]]
            parts.append(columns([[title, "lessons"], *rows]))
    return "\n\n".join(parts)


def _effects(lessons: "Sequence[Lesson]") -> str:
    """The lessons of the most trials: a line for each model, for own tasks, and for simulated trials."""
    from terminalbench.archivist.utility import chance_of_harm
    from terminalbench.text.numbers import points
    from terminalbench.text.table import fitted

    rows = [["lesson", "state", "effect", "sd", "harm", "trials", "with it", "of"]]
    found = [(lesson, effect) for lesson in lessons for effect in lesson.effects]
    for lesson, effect in sorted(found, key=lambda pair: -pair[1].n)[:_MOST]:
        what = ", ".join([effect.model or "no model", *["own tasks"] * effect.own, *["simulated"] * effect.simulated])
        mean, sd, harm = points(effect.mean), points(effect.sd, sign=False), f"{chance_of_harm(effect):.2f}"
        rows.append([lesson.id, lesson.state, mean, sd, harm, f"{effect.n:,}", f"{effect.shown:,}", what])
    return fitted(rows, (0, 1, 7), _WIDTH) if found else ""


def _gains(gained: "Sequence[Gain]") -> str:
    from terminalbench.archivist.gains import GAIN_COLUMNS, gain_row, verdict_said
    from terminalbench.text.foreign import printable
    from terminalbench.text.table import fitted

    if not gained:
        return "No batch compares a profile with lessons and its control."
    table = fitted([GAIN_COLUMNS, *map(gain_row, gained)], (0, 1, 2), _WIDTH)
    notes = [f"{one.profile}: " + "; ".join(filter(None, (verdict_said(one), one.note))) for one in gained]
    return "\n".join([table, *(line for note in notes for line in wrap(printable(note), _WIDTH))])


def _harmful(lessons: "Sequence[Lesson]") -> str:
    from terminalbench.text.numbers import plural, some

    if not lessons:
        return ""
    names = some([one.id for one in lessons], 3)
    said = f"{plural(len(lessons), 'lesson')} retired by effect: {names}"
    return f"{said}. On another model they are not tried again\nunless a person says so: tbench memory approve LESSON."
