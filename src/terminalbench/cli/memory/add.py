"""`tbench memory add`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from terminalbench.cli.memory.options import KINDS, by_option, on_memory, scope_of, task_folders_option, told
from terminalbench.cli.options import json_option
from terminalbench.cli.output import print_json
from terminalbench.errors import EXIT_INCOMPLETE, EXIT_OK

if TYPE_CHECKING:
    from terminalbench.archivist.store import Store


@click.command("add")
@click.option("--do", "do_", metavar="TEXT", help="What to do.")
@click.option("--avoid", metavar="TEXT", help="What to avoid.")
@click.option("--kind", type=click.Choice(KINDS), default="strategy", show_default=True, help="What it is about.")
@click.option("--scope", default="global", show_default=True, metavar="KIND[:VALUE]", help="For which tasks it is.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="A tag, in lower case. May be given again.")
@click.option("--importance", type=float, default=0.5, show_default=True, help="From 0 to 1.")
@click.option("--family", metavar="NAME", help="The family of the task folders. Default: as task.toml names it.")
@task_folders_option
@by_option
@on_memory(write=True)
@json_option
def command(
    store: "Store",
    do_: str | None,
    avoid: str | None,
    kind: str,
    scope: str,
    tags: tuple[str, ...],
    importance: float,
    family: str | None,
    task_folders: tuple[Path, ...],
    by: str,
    as_json: bool,
) -> int:
    """Add a lesson. It is active at once, unless the check finds a leak in it: then exit code 3, and approve decides.

    One that says the same as a lesson that is there becomes part of it.
    """
    from terminalbench.archivist.memory import add
    from terminalbench.archivist.task_texts import read_task, task_in
    from terminalbench.records.lesson import Lesson, LessonKind, LessonState

    if family is not None and not task_folders:
        raise click.UsageError(
            "--family is that of a task the lesson comes from: name it with --task-folder DIR. "
            f"A lesson for one family only is --scope family:{family or 'NAME'}"
        )
    tasks = [read_task(folder) for folder in task_folders]
    draft = Lesson(
        id="",
        do=do_,
        avoid=avoid,
        kind=LessonKind(kind),
        tags=list(dict.fromkeys(tags)),
        importance=importance,
        source_tasks=[task_in(folder, family) for folder in task_folders],
        **scope_of(scope),
    )
    added = add(store, draft, by=by, tasks=tasks)
    if as_json:
        print_json(added)
    else:
        click.echo(told(added))
    return EXIT_OK if added.lesson.state is LessonState.ACTIVE else EXIT_INCOMPLETE
