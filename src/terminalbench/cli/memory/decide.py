"""`tbench memory add`, `edit`, `approve`, `retire` and `merge`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from terminalbench.cli.memory.options import KINDS, by_option, on_memory, scope_of, task_folders_option, told
from terminalbench.cli.options import json_option
from terminalbench.cli.output import print_json
from terminalbench.errors import EXIT_INCOMPLETE, EXIT_OK

if TYPE_CHECKING:
    from terminalbench.archivist.store import Store
    from terminalbench.records.lesson import Lesson


@click.command("add")
@click.option("--do", "do_", metavar="TEXT", help="What to do.")
@click.option("--avoid", metavar="TEXT", help="What to avoid.")
@click.option("--kind", type=click.Choice(KINDS), default="strategy", show_default=True, help="Subject of the lesson.")
@click.option(
    "--scope", default="global", show_default=True, metavar="KIND[:VALUE]", help="Tasks that the lesson applies to."
)
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="A tag, in lower case; repeatable.")
@click.option("--importance", type=float, default=0.5, show_default=True, help="From 0 to 1.")
@click.option("--family", metavar="NAME", help="Family of the --task-folder tasks. Default: the family in task.toml.")
@task_folders_option
@by_option
@on_memory(write=True)
@json_option
def add_command(
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
    """Add a lesson. It is active at once, unless the check finds a leak in it: then the exit code is 3, and the
    lesson is not used until you approve it.

    A lesson that repeats an existing one is merged into it.
    """
    from terminalbench.archivist.checks import read_task, task_in
    from terminalbench.archivist.memory import add
    from terminalbench.records.lesson import Lesson, LessonKind, LessonState

    if family is not None and not task_folders:
        raise click.UsageError(
            "--family is the family of the task that the lesson comes from: also give --task-folder DIR. To write a "
            "lesson for one family only: --scope family:{family or 'NAME'}"
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


@click.command("edit")
@click.argument("lesson")
@click.option("--do", "do", metavar="TEXT", help="What to do; an empty text removes it.")
@click.option("--avoid", metavar="TEXT", help="What to avoid; an empty text removes it.")
@click.option("--kind", type=click.Choice(KINDS), help="Subject of the lesson.")
@click.option("--scope", metavar="KIND[:VALUE]", help="Tasks that the lesson applies to.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Replace the tags by this one; repeatable.")
@click.option("--importance", type=float, help="From 0 to 1.")
@click.option("--reason", metavar="TEXT", help="Why.")
@task_folders_option
@by_option
@on_memory(write=True)
@json_option
def edit_command(
    store: "Store",
    lesson: str,
    scope: str | None,
    reason: str | None,
    task_folders: tuple[Path, ...],
    by: str,
    as_json: bool,
    **given: Any,
) -> int:
    """Change a lesson. LESSON is its id, or the beginning of it. A new text is checked for leaks again.

    Exit code 3 when the new text is not in use: a leak was found, or the files of a source task are missing.
    """
    from terminalbench.archivist.checks import read_task, task_in
    from terminalbench.archivist.entries import LessonChanges
    from terminalbench.archivist.memory import edit
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
        raise click.UsageError("nothing to change: give at least one field, such as --do")
    after = edit(
        store,
        lesson,
        LessonChanges(**fields),
        by=by,
        reason=reason,
        tasks=[read_task(one) for one in task_folders],
        sources=[task_in(one) for one in task_folders],
    )
    _tell(after, as_json=as_json)
    waits = after.state in (LessonState.QUARANTINED, LessonState.CANDIDATE)
    return EXIT_INCOMPLETE if waits and (task_folders or {"do", "avoid"} & fields.keys()) else EXIT_OK


@click.command("approve")
@click.argument("lesson")
@click.option("--reason", metavar="TEXT", help="Why.")
@by_option
@on_memory(write=True)
@json_option
def approve_command(store: "Store", lesson: str, reason: str | None, by: str, as_json: bool) -> None:
    """Put a lesson into use, even if the check found a leak in it. LESSON is its id, or the beginning of it."""
    from terminalbench.archivist.memory import approve

    after = approve(store, lesson, by=by, reason=reason)
    _tell(after, as_json=as_json)


@click.command("retire")
@click.argument("lesson")
@click.option("--reason", metavar="TEXT", required=True, help="Why.")
@by_option
@on_memory(write=True)
@json_option
def retire_command(store: "Store", lesson: str, reason: str, by: str, as_json: bool) -> None:
    """Take a lesson out of use. It stays in memory, so that the same is not learned again."""
    from terminalbench.archivist.memory import retire

    after = retire(store, lesson, by=by, reason=reason)
    _tell(after, as_json=as_json)


@click.command("merge")
@click.argument("into", metavar="LESSON")
@click.argument("lessons", metavar="OTHER...", nargs=-1, required=True)
@click.option("--reason", metavar="TEXT", required=True, help="Why.")
@by_option
@on_memory(write=True)
@json_option
def merge_command(store: "Store", into: str, lessons: tuple[str, ...], reason: str, by: str, as_json: bool) -> None:
    """Merge other lessons into LESSON: it takes over their evidence, tags and source tasks, and they are
    retired."""
    from terminalbench.archivist.memory import merge

    after = merge(store, into, lessons, by=by, reason=reason)
    if as_json:
        print_json(after)
    else:
        click.echo(f"{after.id} is {after.state} and now includes {len(set(lessons))}")


def _tell(after: "Lesson", *, as_json: bool) -> None:
    """Print what a lesson is after a decision, and why."""
    if as_json:
        print_json(after)
    else:
        click.echo(f"{after.id} is {after.state}" + (f": {after.reason}" if after.reason else ""))
