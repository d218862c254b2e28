"""`tbench memory edit`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from terminalbench.cli.memory.options import KINDS, by_option, on_memory, scope_of, task_folders_option
from terminalbench.cli.options import json_option
from terminalbench.cli.output import print_json
from terminalbench.errors import EXIT_INCOMPLETE, EXIT_OK

if TYPE_CHECKING:
    from terminalbench.archivist.store import Store


@click.command("edit")
@click.argument("lesson")
@click.option("--do", "do", metavar="TEXT", help="What to do; empty takes it out.")
@click.option("--avoid", metavar="TEXT", help="What to avoid; empty takes it out.")
@click.option("--kind", type=click.Choice(KINDS), help="What it is about.")
@click.option("--scope", metavar="KIND[:VALUE]", help="For which tasks it is.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Its tags from now on. May be given again.")
@click.option("--importance", type=float, help="From 0 to 1.")
@click.option("--reason", metavar="TEXT", help="Why.")
@task_folders_option
@by_option
@on_memory(write=True)
@json_option
def command(
    store: "Store",
    lesson: str,
    scope: str | None,
    reason: str | None,
    task_folders: tuple[Path, ...],
    by: str,
    as_json: bool,
    **given: Any,
) -> int:
    """Change a lesson. LESSON is its id, or how that begins. A new text is checked for leaks again.

    Exit code 3 when the new text is not in use: a leak was found, or the files of a task that it comes from were not.
    """
    from terminalbench.archivist.entries import LessonChanges
    from terminalbench.archivist.memory import edit
    from terminalbench.archivist.task_texts import read_task, task_in
    from terminalbench.records.lesson import LessonKind, LessonState

    fields = {name: value for name, value in given.items() if value not in (None, ())}
    fields |= {name: given[name] or None for name in ("do", "avoid") if given[name] is not None}
    if "kind" in fields:
        fields["kind"] = LessonKind(fields["kind"])
    if "tags" in fields:
        fields["tags"] = list(dict.fromkeys(fields["tags"]))
    if scope is not None:
        fields |= scope_of(scope)
    if not fields and not task_folders:
        raise click.UsageError("nothing to change: give at least one of its fields")
    after = edit(
        store,
        lesson,
        LessonChanges(**fields),
        by=by,
        reason=reason,
        tasks=[read_task(one) for one in task_folders],
        sources=[task_in(one) for one in task_folders],
    )
    if as_json:
        print_json(after)
    else:
        click.echo(f"{after.id} is {after.state}" + (f": {after.reason}" if after.reason else ""))
    waits = after.state in (LessonState.QUARANTINED, LessonState.CANDIDATE)
    return EXIT_INCOMPLETE if waits and (task_folders or {"do", "avoid"} & fields.keys()) else EXIT_OK
