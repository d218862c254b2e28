"""`tbench memory`, and what its commands share: the store, the author, the lessons meant, how they are written."""

import os
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from terminalbench.cli.commands import GROUPS, group
from terminalbench.cli.options import PATH, root_option
from terminalbench.errors import UserError, did_you_mean
from terminalbench.experiments.project import current_project
from terminalbench.text.foreign import flat, short
from terminalbench.text.numbers import plural, points
from terminalbench.text.table import columns

if TYPE_CHECKING:
    from terminalbench.archivist.store import Store
    from terminalbench.records.lesson import Lesson, Utility

MODULES = {
    name: module
    for module, titles in {"look": ["Look"], "change": ["Learn", "Decide", "Take along"]}.items()
    for title in titles
    for name in GROUPS["memory"][title]
}


@group("memory", __name__, MODULES)
def command() -> None:
    """The lessons of a project: .terminalbench/memory.jsonl, a log that every command here only appends to."""


STATES = ("candidate", "active", "retired", "quarantined")
KINDS = ("strategy", "pitfall", "tool", "environment", "checking")
SCOPES = ("global", "suite", "repository", "family", "task")


def on_memory(*, write: bool = False) -> Callable[[Callable[..., int | None]], Any]:
    """A command on the memory of a project: `--root` becomes `store`. What of the log cannot be read is said."""

    def wrapped(command: Callable[..., int | None]) -> Any:
        @wraps(command)
        def called(root: Path | None, **rest: Any) -> int | None:
            from terminalbench.archivist.store import ProblemKind, open_store

            with open_store(memory_folder(root), write=write, held_up=_held_up) as store:
                for problem in store.problems():
                    if problem.kind in (ProblemKind.LOST, ProblemKind.EDITED):
                        click.echo(f"warning: {store.place.log}: {problem.what}", err=True)
                if store.behind:
                    note = "note: another process is stuck while it writes to memory; its last entry is not shown"
                    click.echo(note, err=True)
                return command(store=store, **rest)

        return root_option(called)

    return wrapped


def memory_folder(root: Path | None) -> Path:
    """Return the folder of the project's memory."""
    return current_project(root) / ".terminalbench"


def _held_up(lock: Path) -> None:
    click.echo(f"note: waiting for {lock}: another process, perhaps a stopped one, holds this lock", err=True)


def roots_of(store: "Store", results: Path | None) -> list[Path]:
    """The results folder that was named, or that of the project of a memory, and those of the nights in it."""
    from terminalbench.lab.select import results_root
    from terminalbench.overnight.nights import night_results

    usual = store.place.folder.parent / "results"
    if results is None and not usual.is_dir():
        return []
    root = results_root(results or usual)
    return [root, *night_results(root).values()]


def _speaker(_context: click.Context, _option: click.Parameter, given: str | None) -> str:
    import getpass

    name = given if given is not None else os.environ.get("USER") or getpass.getuser()
    if not name.strip():
        raise click.BadParameter("is empty")
    return name


by_option: Any = click.option(
    "--by", metavar="NAME", callback=_speaker, help="Author of the change. Default: your user name."
)
task_folders_option: Any = click.option(
    "--task-folder",
    "task_folders",
    multiple=True,
    type=PATH,
    metavar="DIR",
    help="Folder of a task that the lesson comes from. The lesson is compared with the task's instruction, tests and "
    "solution, so that it leaks nothing.",
)


def filter_options(command: Callable[..., int | None]) -> Any:
    """The options that pick lessons become `wanted`."""

    @wraps(command)
    def called(state: str | None, kind: str | None, scope: str | None, tag: str | None, **rest: Any) -> int | None:
        from terminalbench.archivist.inventory import LessonFilter
        from terminalbench.records.lesson import LessonKind, LessonScope, LessonState

        wanted = LessonFilter(
            state=LessonState(state) if state else None,
            kind=LessonKind(kind) if kind else None,
            scope=LessonScope(scope) if scope else None,
            tag=tag,
        )
        return command(wanted=wanted, **rest)

    for name, values in (("scope", SCOPES), ("kind", KINDS), ("state", STATES)):
        called = click.option(f"--{name}", type=click.Choice(values), help=f"Only lessons of this {name}.")(called)
    return click.option("--tag", metavar="TAG", help="Only lessons with this tag.")(called)


def scope_of(text: str) -> dict[str, Any]:
    """The fields of a lesson that `KIND` or `KIND:VALUE` means."""
    from terminalbench.records.lesson import LessonScope

    kind, _, value = text.partition(":")
    if kind not in SCOPES:
        raise UserError(f'"{kind}" is not a scope', hint=did_you_mean(kind, SCOPES))
    return {"scope": LessonScope(kind), "scope_value": value or None}


def table(lessons: "Sequence[Lesson]", width: int) -> str:
    """Lessons as a table of at most `width` columns, a line each."""
    rows = [["lesson", "state", "scope", "effect"]]
    for one in lessons:
        effect = points(one.utility.mean) if one.utility is not None else "-"
        rows.append([one.id, one.state, short(scope_text(one), 20), effect])
    room = max(20, width - max(map(len, columns(rows, left=(0, 1, 2)).split("\n"))) - 2)
    texts = ["text", *(flat(one.text, room) for one in lessons)]
    return columns([[*row, text] for row, text in zip(rows, texts, strict=True)], left=(0, 1, 2, 4))


def scope_text(lesson: "Lesson") -> str:
    """A scope as it is given: `global`, `repository:NAME`."""
    return lesson.scope if lesson.scope_value is None else f"{lesson.scope}:{lesson.scope_value}"


def effect_line(effect: "Utility") -> str:
    """One measured effect: how large, how sure, from how many trials of which model."""
    kind = "simulated trial" if effect.simulated else "trial"
    where = f" of {effect.model}" if effect.model else ""
    own = ", on the tasks that it comes from" if effect.own else ""
    counted = f"{plural(effect.n, kind)}{where}, {effect.shown} with it{own}"
    return f"{points(effect.mean)} (sd {points(effect.sd, sign=False)}; {counted})"


def told(lesson: "Lesson", *, merged: bool = False) -> str:
    """Return what a lesson is after a decision, and why; `merged`: one that was added says the same."""
    if merged:
        return f"{lesson.id} says the same, so this was merged into it ({lesson.state})"
    return f"{lesson.id} is {lesson.state}" + (f": {lesson.reason}" if lesson.reason else "")
