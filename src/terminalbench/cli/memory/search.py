"""`tbench memory search`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from terminalbench.cli.memory.options import filter_options, on_memory, table
from terminalbench.cli.options import PATH, json_option
from terminalbench.cli.output import print_json, text_width

if TYPE_CHECKING:
    from terminalbench.archivist.inventory import LessonFilter
    from terminalbench.archivist.store import Store


@click.command("search")
@click.argument("text", nargs=-1)
@click.option("--task-folder", type=PATH, metavar="DIR", help="What a trial of the task in this folder would get.")
@click.option("--family", metavar="NAME", help="The family of that task. Default: as its task.toml names it.")
@click.option("--repository", metavar="NAME", help="Its repository. Default: as its task.toml names it.")
@click.option("--suite", metavar="NAME", help="The suite of that task.")
@click.option(
    "--task-tag", "tags", multiple=True, metavar="TAG", help="A tag of that task. Default: those of its task.toml."
)
@click.option(
    "--mode", type=click.Choice(("masked", "recall")), default="masked", show_default=True, help="Whether it is masked."
)
@click.option("-k", type=click.IntRange(1, 3), default=3, show_default=True, help="How many lessons that task gets.")
@on_memory()
@filter_options
@click.option("--limit", type=click.IntRange(1), default=10, show_default=True, metavar="N", help="Only the best N.")
@json_option
def command(
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
    """Find lessons by words, the best first; or, with --task-folder, those that a trial of a task would get.

    Words find lessons in every state. A task gets active ones only, and in mode masked none from itself or its family.
    """
    from dataclasses import replace

    from terminalbench.archivist.inventory import search
    from terminalbench.archivist.retrieval import RetrievalMode, RetrievalPolicy, retrieve
    from terminalbench.archivist.snapshots import situation_in
    from terminalbench.archivist.task_texts import task_in

    if bool(text) == (task_folder is not None):
        raise click.UsageError("give words, or --task-folder DIR")
    masked = 0
    if task_folder is not None:
        known = situation_in(task_folder, task_in(task_folder, family))
        situation = replace(
            known, tags=tags or known.tags, suite=suite or known.suite, repository=repository or known.repository
        )
        answer = retrieve(store.connection, situation, RetrievalPolicy(RetrievalMode(mode), k))
        found, masked = [one.lesson for one in answer.lessons], answer.masked
    else:
        found = search(store, " ".join(text), wanted, limit)
    if as_json:
        print_json({"lessons": found, "masked": masked})
        return
    click.echo(table(found, text_width()) if found else "no lesson found")
    if masked:
        click.echo(f"{masked} masked: they come from this task or its family", err=True)
