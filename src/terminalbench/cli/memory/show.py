"""`tbench memory show`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from terminalbench.cli.memory.options import effect_line, effect_text, on_memory, roots_of, scope_text
from terminalbench.cli.options import json_option
from terminalbench.cli.output import print_json, text_width

if TYPE_CHECKING:
    from terminalbench.archivist.entries import MemoryEntry
    from terminalbench.archivist.store import Store
    from terminalbench.records.lesson import Lesson


@click.command("show")
@click.argument("lesson")
@on_memory()
@json_option
def command(store: "Store", lesson: str, as_json: bool) -> None:
    """Show one lesson, what supports it, and its history. LESSON is its id, or how that begins."""
    from terminalbench.archivist.inventory import history
    from terminalbench.archivist.memory import find

    found = find(store, lesson)
    entries = history(store, found.id)
    if as_json:
        print_json({"lesson": found, "log": entries})
        return
    width = text_width()
    nights = _nights_with(store, found)
    click.echo(
        "\n".join([*_lines(found, width, nights), "", "log:", *(entry_line(entry, width, "  ") for entry in entries)])
    )


def _nights_with(store: "Store", lesson: "Lesson") -> dict[str, Path]:
    """Where the trials lie that are evidence from a night, by what they are called."""
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
    from textwrap import fill

    from terminalbench.text.foreign import printable, visible

    state = lesson.state + (f": {lesson.reason}" if lesson.reason else "")
    facts = {
        "state": state,
        "part of": lesson.superseded_by,
        "kind": lesson.kind,
        "scope": scope_text(lesson),
        "tags": ", ".join(lesson.tags) or None,
        "importance": f"{lesson.importance:g}",
        "effect": effect_text(lesson),
        **{f"effect {n}": effect_line(one) for n, one in enumerate(lesson.effects, 1) if one != lesson.utility},
        "author": lesson.author,
        "model": lesson.model,
        "profile": lesson.profile,
        "learned from": ", ".join(dict.fromkeys(task.id for task in lesson.source_tasks)) or None,
        "simulated": "learned from simulated trials, told to simulated agents only" if lesson.simulated else None,
        "families": ", ".join(lesson.families) or None,
    }
    said = [
        fill(line, width, initial_indent="  ", subsequent_indent="    ") for line in visible(lesson.text).split("\n")
    ]
    lines = [f"{name:<13} {value}" for name, value in facts.items() if value is not None]
    for one in lesson.evidence:
        steps = f", step {', '.join(map(str, one.steps))}" if one.steps else ""
        quote = f': "{one.quote}"' if one.quote else ""
        night = f" in {nights[one.trial].name}" if one.trial in nights else ""
        lines.append(f"{'evidence':<13} {one.trial}{night}{steps}{quote}")
    return [lesson.id, *said, "", *(fill(printable(line), width, subsequent_indent=" " * 14) for line in lines)]


def entry_line(entry: "MemoryEntry", width: int, indent: str = "") -> str:
    """An operation: number, time, what, on which lesson, by whom, why; as many lines as it takes."""
    from textwrap import fill

    from terminalbench.text.foreign import printable
    from terminalbench.text.numbers import moment

    changed = ", ".join(entry.changes.values()) if entry.changes is not None else ""
    took = f" takes up {', '.join(entry.absorbed)}" if entry.absorbed else ""
    why = f" after {entry.trigger}" if entry.trigger is not None else ""
    why += f": {entry.reason}" if entry.reason else ""
    detail = f" ({changed})" if changed and not entry.absorbed else ""
    told = f"{entry.seq}  {moment(entry.time)}  {entry.op} {entry.id}{took}{detail}, by {entry.by}{why}"
    return fill(printable(told), width, initial_indent=indent, subsequent_indent=f"{indent}    ")
