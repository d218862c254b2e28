"""`tbench memory add`, `edit`, `approve`, `retire`, `merge`, `reflect`, `learn`, `export` and `import`."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from terminalbench.cli.memory import (
    KINDS,
    by_option,
    filter_options,
    on_memory,
    roots_of,
    scope_of,
    task_folders_option,
    told,
)
from terminalbench.cli.options import PATH, json_option, results_option
from terminalbench.cli.output import print_json
from terminalbench.errors import EXIT_INCOMPLETE, EXIT_OK, UserError
from terminalbench.files import write_lines
from terminalbench.text.foreign import flat
from terminalbench.text.numbers import cost, plural

if TYPE_CHECKING:
    from terminalbench.archivist.inventory import LessonFilter
    from terminalbench.archivist.store import Store
    from terminalbench.records.lesson import Lesson


@click.command("add")
@click.option("--do", "do_", metavar="TEXT", help="What to do.")
@click.option("--avoid", metavar="TEXT", help="What to avoid.")
@click.option("--kind", type=click.Choice(KINDS), default="strategy", help="Subject of the lesson.")
@click.option("--scope", default="global", metavar="KIND[:VALUE]", help="Tasks that the lesson applies to.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="A tag, in lower case; repeatable.")
@click.option("--importance", type=float, default=0.5, help="From 0 to 1.")
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
            f"lesson for one family only: --scope family:{family}"
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
        click.echo(told(added.lesson, merged=added.merged))
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
    fields |= {name: fields[name] or None for name in ("do", "avoid") if name in fields}
    if "kind" in fields:
        fields["kind"] = LessonKind(fields["kind"])
    if "tags" in fields:
        fields["tags"] = list(dict.fromkeys(fields["tags"]))
    if scope is not None:
        fields |= scope_of(scope)
    if not fields and not task_folders:
        raise click.UsageError("nothing to change: give at least one field, such as --do")
    origin = {"tasks": list(map(read_task, task_folders)), "sources": [task_in(one) for one in task_folders]}
    after = edit(store, lesson, LessonChanges(**fields), by=by, reason=reason, **origin)
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
    if as_json:
        print_json(after)
    else:
        click.echo(told(after))


@click.command("reflect")
@click.argument("batch", type=PATH, required=False)
@click.option(
    "--model",
    metavar="M",
    help="Chat model that reads the trajectories; its calls are billed. Default: built-in rules, which cost nothing.",
)
@click.option(
    "--budget-usd",
    type=click.FloatRange(min=0, min_open=True),
    metavar="USD",
    help="Upper limit of what the model may cost: a call that could exceed it is not made.",
)
@click.option(
    "--budget-tokens",
    type=click.IntRange(1000, 200_000),
    default=12_000,
    metavar="N",
    help="How much of each trajectory the model sees.",
)
@results_option
@on_memory(write=True)
@json_option
def reflect_command(
    store: "Store",
    batch: Path | None,
    model: str | None,
    budget_usd: float | None,
    budget_tokens: int,
    results: Path | None,
    as_json: bool,
) -> int:
    """Derive at most three lessons from a batch, by built-in rules on its failures or with a chat model.

    BATCH is a folder, slug/n or an experiment; without it, the newest. They pass the same checks as lessons
    that you add. Exit code 3: the model was not called, because that could exceed the budget.
    """
    from terminalbench.archivist.reflection import ReflectionLimits, reflect
    from terminalbench.experiments.envfile import variables_of
    from terminalbench.lab.select import SelectedBatches, find_target
    from terminalbench.llm.model import chat_model

    target = find_target(batch, None, results, with_data=True)
    with variables_of(*SelectedBatches((target,)).env_files) if model is not None else nullcontext():
        asked = chat_model(model) if model is not None else None
        found = reflect(store, target.batch, asked, limits=ReflectionLimits(budget_tokens, budget_usd))
    code = EXIT_OK if found.stopped is None else EXIT_INCOMPLETE
    if as_json:
        print_json(found)
        return code
    for added in found.added:
        click.echo(told(added.lesson, merged=added.merged))
    for one in found.refused:
        click.echo(f"refused: {flat(one.text, 60)}: {one.why}", err=True)
    lessons = plural(len(found.added), "lesson")
    spent = f", cost {cost(found.cost_usd)}" if found.asked else ""
    click.echo(f"{lessons} from {plural(found.trials, 'measured trial')}{spent}")
    if found.stopped is not None:
        click.echo(f"{model} was not called: {found.stopped}", err=True)
    return code


@click.command("learn")
@results_option
@on_memory(write=True)
@json_option
def learn_command(store: "Store", results: Path | None, as_json: bool) -> None:
    """Estimate what each lesson is worth, from trials that got it or not, as drawn at random.

    Reads every batch and every night of the results folder. A trial counts once, however often you run this. A
    lesson that does harm with a probability above 0.9 is retired, and the recorded reason names the trials.
    """
    from terminalbench.archivist.effects import count_trials
    from terminalbench.archivist.gains import exposed

    found = count_trials(store, exposed(roots_of(store, results)).trials)
    if as_json:
        print_json(found)
        return
    for lesson in found.retired:
        click.echo(f"{lesson.id} is retired: {lesson.reason}")
    changed = plural(len(found.changed), "lesson")
    click.echo(f"{plural(found.trials, 'new trial')} counted; the estimates of {changed} have changed")


@click.command("export")
@click.option("-o", "--output", type=PATH, metavar="FILE", help="Where to write. Default: standard output.")
@on_memory()
@filter_options
def export_command(store: "Store", output: Path | None, wanted: "LessonFilter") -> None:
    """Write lessons as JSON lines, oldest first."""
    from terminalbench.archivist.inventory import each_lesson
    from terminalbench.json_files import encode_line

    found = list(each_lesson(store, wanted))[::-1]
    if output is None:
        for lesson in found:
            print_json(lesson, in_line=True)
        return
    if output.is_dir():
        raise UserError("is a folder", where=str(output), hint="name a file")
    if not output.parent.is_dir():
        raise UserError("no such folder", where=str(output.parent), hint="create the folder, or name another file")
    write_lines(output, map(encode_line, found))
    click.echo(f"{plural(len(found), 'lesson')} in {output}")


@click.command("import")
@click.argument("file", type=PATH)
@by_option
@on_memory(write=True)
@json_option
def import_command(store: "Store", file: Path, by: str, as_json: bool) -> None:
    """Add exported lessons as candidates: approvals and measurements from elsewhere do not count here.

    To move a whole memory, copy memory.jsonl instead.
    """
    from terminalbench.archivist.inventory import import_lessons

    if not file.is_file():
        raise UserError("no such file", where=str(file), hint="tbench memory export writes one")
    found = import_lessons(store, file, by=by)
    if as_json:
        print_json(found)
        return
    for added in found.added:
        click.echo(told(added.lesson, merged=added.merged))
    out = f"; {found.left_out} left out, retired or quarantined there" if found.left_out else ""
    click.echo(f"{plural(len(found.added), 'lesson')} read{out}")
