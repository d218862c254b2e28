"""`tbench memory list`, `show`, `search`, `stats`, `log` and `check`."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from terminalbench.cli.memory import effect_line, filter_options, memory_folder, on_memory, roots_of, scope_text, table
from terminalbench.cli.options import PATH, json_option, results_option, root_option
from terminalbench.cli.output import print_json, say, text_width
from terminalbench.errors import EXIT_INCOMPLETE, EXIT_OK
from terminalbench.text.foreign import printable, visible
from terminalbench.text.names import typed
from terminalbench.text.numbers import moment, plural, points, some
from terminalbench.text.table import columns, fitted, wrapped

if TYPE_CHECKING:
    from terminalbench.archivist.entries import MemoryEntry
    from terminalbench.archivist.gains import Gain
    from terminalbench.archivist.inventory import LessonFilter, Stats
    from terminalbench.archivist.store import Store
    from terminalbench.records.lesson import Lesson


@click.command("list")
@on_memory()
@filter_options
@click.option("--limit", type=click.IntRange(1), default=50, metavar="N", help="Only the newest N entries.")
@json_option
def list_command(store: "Store", wanted: "LessonFilter", limit: int, as_json: bool) -> None:
    """List lessons, newest first."""
    from terminalbench.archivist.inventory import each_lesson

    found = list(islice(each_lesson(store, wanted), limit + 1))
    if as_json:
        print_json(found[:limit])
    elif not found:
        anything = next(each_lesson(store), None) is not None
        click.echo("no lesson matches" if anything else "no lessons yet: tbench memory add writes one")
    else:
        click.echo(table(found[:limit], text_width()))
        if len(found) > limit:
            click.echo(f"only the newest {limit} are shown; --limit shows more", err=True)


@click.command("show")
@click.argument("lesson")
@on_memory()
@json_option
def show_command(store: "Store", lesson: str, as_json: bool) -> None:
    """Show one lesson, what supports it, and its history. LESSON is its id, or the beginning of it."""
    from terminalbench.archivist.inventory import history
    from terminalbench.archivist.memory import find

    found = find(store, lesson)
    entries = history(store, found.id)
    if as_json:
        print_json({"lesson": found, "log": entries})
        return
    width = text_width()
    nights = _nights_with(store, found)
    log = [f"  {entry_line(entry)}" for entry in entries]
    click.echo("\n".join([*_lines(found, width, nights), "", "log:", *wrapped(log, width)]))


def _nights_with(store: "Store", lesson: "Lesson") -> dict[str, Path]:
    """Return where the trials lie that are evidence from a night, by what they are called."""
    nights = roots_of(store, None)[1:]
    found = {}
    for one in lesson.evidence:
        slug, number, *trial = one.trial.split("/")
        places = (night / slug / number / runs for night in nights for runs in ("runs", "superseded"))
        folder = next((place for place in places if trial and place.joinpath(*trial).is_dir()), None)
        if folder is not None:
            found[one.trial] = folder.parents[3]
    return found


def _lines(lesson: "Lesson", width: int, nights: dict[str, Path]) -> list[str]:

    state = lesson.state + (f": {lesson.reason}" if lesson.reason else "")
    facts = {
        "state": state,
        "part of": lesson.superseded_by,
        "kind": lesson.kind,
        "scope": scope_text(lesson),
        "tags": ", ".join(lesson.tags) or None,
        "importance": f"{lesson.importance:g}",
        "effect": effect_line(lesson.utility) if lesson.utility is not None else "not measured",
        **{f"effect {n}": effect_line(one) for n, one in enumerate(lesson.effects, 1) if one != lesson.utility},
        "author": lesson.author,
        "model": lesson.model,
        "profile": lesson.profile,
        "learned from": ", ".join(dict.fromkeys(task.id for task in lesson.source_tasks)) or None,
        "simulated": "learned from simulated trials; shown to simulated agents only" if lesson.simulated else None,
        "families": ", ".join(lesson.families) or None,
    }
    said = wrapped((f"  {line}" for line in visible(lesson.text).split("\n")), width)
    lines = [f"{name:<13} {value}" for name, value in facts.items() if value is not None]
    for one in lesson.evidence:
        steps = f", step {', '.join(map(str, one.steps))}" if one.steps else ""
        quote = f': "{one.quote}"' if one.quote else ""
        night = f" in {nights[one.trial].name}" if one.trial in nights else ""
        lines.append(f"{'evidence':<13} {one.trial}{night}{steps}{quote}")
    return [lesson.id, *said, "", *wrapped(map(printable, lines), width)]


def entry_line(entry: "MemoryEntry") -> str:
    """An operation: number, time, what, on which lesson, by whom, why."""
    changed = ", ".join(entry.changes.values()) if entry.changes is not None else ""
    took = f" takes up {', '.join(entry.absorbed)}" if entry.absorbed else ""
    why = f" after {entry.trigger}" if entry.trigger is not None else ""
    why += f": {entry.reason}" if entry.reason else ""
    detail = f" ({changed})" if changed and not entry.absorbed else ""
    return printable(f"{entry.seq}  {moment(entry.time)}  {entry.op} {entry.id}{took}{detail}, by {entry.by}{why}")


@click.command("search")
@click.argument("text", nargs=-1)
@click.option(
    "--task-folder",
    type=PATH,
    metavar="DIR",
    help="Show the lessons that a trial of the task in this folder would get.",
)
@click.option("--family", metavar="NAME", help="Family of that task. Default: the family in its task.toml.")
@click.option("--repository", metavar="NAME", help="Repository of that task. Default: the repository in its task.toml.")
@click.option("--suite", metavar="NAME", help="Suite of that task.")
@click.option(
    "--task-tag",
    "tags",
    multiple=True,
    metavar="TAG",
    help="A tag of that task; repeatable. Default: the tags in its task.toml.",
)
@click.option(
    "--mode",
    type=click.Choice(("masked", "recall")),
    default="masked",
    help="masked leaves out lessons that come from the task itself or its family; recall includes them.",
)
@click.option("-k", type=click.IntRange(1, 3), default=3, help="Upper limit of the lessons that the task gets.")
@on_memory()
@filter_options
@click.option("--limit", type=click.IntRange(1), default=10, metavar="N", help="Only the best N matches.")
@json_option
def search_command(
    store: "Store",
    text: tuple[str, ...],
    task_folder: Path | None,
    family: str | None,
    repository: str | None,
    suite: str | None,
    tags: tuple[str, ...],
    mode: str,
    k: int,
    wanted: "LessonFilter",
    limit: int,
    as_json: bool,
) -> None:
    """Find lessons by words, best first; or, with --task-folder, the lessons that a trial of a task would get.

    Words find lessons in every state. A task gets active ones only, and in mode masked none from itself or its family.
    """
    from terminalbench.archivist.checks import task_in
    from terminalbench.archivist.inventory import search
    from terminalbench.archivist.retrieval import RetrievalMode, RetrievalPolicy, retrieve, situation_in

    if bool(text) == (task_folder is not None):
        raise click.UsageError("give words to search for, or --task-folder DIR")
    masked = 0
    if task_folder is not None:
        given = {"tags": tags, "suite": suite, "repository": repository}
        own = {name: value for name, value in given.items() if value}
        situation = replace(situation_in(task_folder, task_in(task_folder, family)), **own)
        answer = retrieve(store.connection, situation, RetrievalPolicy(RetrievalMode(mode), k))
        found, masked = [one.lesson for one in answer.lessons], answer.masked
    else:
        found = search(store, " ".join(text), wanted, limit)
    if as_json:
        print_json({"lessons": found, "masked": masked})
        return
    click.echo(table(found, text_width()) if found else "no lesson found")
    if masked:
        click.echo(f"{masked} left out: from this task or its family (--mode recall includes them)", err=True)


_MOST = 10
_WIDTH = 80


@click.command("stats")
@results_option
@on_memory()
@json_option
def stats_command(store: "Store", results: Path | None, as_json: bool) -> int:
    """Count what memory holds, and show what its lessons gain: transfer and recall, each against its control.

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
        effects = {"nothing_known": unknown, "gains": gained, "retired_by_effect": [one.id for one in harmful]}
        print_json({**asdict(found), **effects})
        return EXIT_INCOMPLETE if lost else EXIT_OK
    measured = [one for one in each_lesson(store, LessonFilter()) if one.effects]
    why = "\n".join(wrapped([unknown or ""], _WIDTH))
    parts = [_counts(found), why, _effects(measured), _gains(gained), _harmful(harmful)]
    click.echo("\n\n".join(filter(None, parts)))
    for problem in found.problems:
        if problem.kind not in (ProblemKind.LOST, ProblemKind.EDITED):  # those were said already
            click.echo(f"note: {store.place.log}: {problem.what}", err=True)
    return EXIT_INCOMPLETE if lost else EXIT_OK


def _counts(found: "Stats") -> str:

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

    rows = [["lesson", "state", "effect", "sd", "harm", "trials", "with it", "of"]]
    found = [(lesson, effect) for lesson in lessons for effect in lesson.effects]
    for lesson, effect in sorted(found, key=lambda pair: -pair[1].n)[:_MOST]:
        what = ", ".join([effect.model or "no model", *["own tasks"] * effect.own, *["simulated"] * effect.simulated])
        mean, sd, harm = points(effect.mean), points(effect.sd, sign=False), f"{chance_of_harm(effect):.2f}"
        rows.append([lesson.id, lesson.state, mean, sd, harm, f"{effect.n:,}", f"{effect.shown:,}", what])
    return fitted(rows, (0, 1, 7), _WIDTH) if found else ""


def _gains(gained: "Sequence[Gain]") -> str:
    from terminalbench.archivist.gains import GAINS, verdict_said

    if not gained:
        return "No batch compares a profile with lessons with its control without them."
    found = GAINS.of(gained)
    table = fitted([found.head, *found.rows], (0, 1, 2), _WIDTH)
    notes = [f"{one.profile}: " + "; ".join(filter(None, (verdict_said(one), one.note))) for one in gained]
    return "\n".join([table, *wrapped(map(printable, notes), _WIDTH)])


def _harmful(lessons: "Sequence[Lesson]") -> str:

    if not lessons:
        return ""
    names = some([one.id for one in lessons], 3)
    said = f"{plural(len(lessons), 'lesson')} retired by effect: {names}"
    return f"{said}. They are not tried again on another model,\nunless you approve them: tbench memory approve LESSON."


@click.command("log")
@click.argument("lesson", required=False)
@on_memory()
@click.option("--limit", type=click.IntRange(1), default=50, metavar="N", help="Only the newest N entries.")
@json_option
def log_command(store: "Store", lesson: str | None, limit: int, as_json: bool) -> None:
    """Show the operations on memory, newest first: all of them, or those on one LESSON."""
    from terminalbench.archivist.inventory import history

    found = history(store, lesson, limit)
    if as_json:
        print_json(found)
        return
    say(*map(entry_line, found) if found else ("the log is empty",))


@click.command("check")
@root_option
@click.option("--repair", "mend", is_flag=True, help="Rewrite the log from its readable entries; the old log is kept.")
@json_option
def check_command(root: Path | None, mend: bool, as_json: bool) -> int:
    """Check the log line by line for entries that are missing, were edited, or cannot be read.

    Exit code 3: it found some. --repair leaves out what cannot be read, accepts edited entries as they read
    now, and keeps the old log beside the new one.
    """
    from terminalbench.archivist.store import ProblemKind, open_store, repair

    folder = memory_folder(root)
    done = repair(folder) if mend else None
    with open_store(folder) as store:
        found = store.problems()
        entries = store.connection.execute("SELECT count(*) FROM entries").fetchone()[0]
        log = store.place.log
    bad = [one for one in found if one.kind is not ProblemKind.CUT_OFF]
    if as_json:
        print_json({"log": log, "entries": entries, "problems": found, "repair": done})
        return EXIT_INCOMPLETE if bad else EXIT_OK
    if done is not None:
        click.echo(f"repaired: {plural(done.kept, 'entry', 'entries')} kept; the old log: {typed(done.copy)}")
        click.echo("".join(f"left out: {what}\n" for what in done.left_out), nl=False)
    elif mend:
        click.echo("nothing to repair")
    for one in found:
        click.echo(f"{one.kind}: {one.what}")
    click.echo(f"{log}: {plural(entries, 'entry', 'entries')}, {plural(len(bad), 'problem')}")
    if bad:
        click.echo("tbench memory check --repair leaves out what cannot be used", err=True)
    return EXIT_INCOMPLETE if bad else EXIT_OK
