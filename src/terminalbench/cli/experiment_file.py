"""`tbench init`, `validate`, `diff`, `migrate` and `schema`: an experiment file, without running it."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, override

import click

from terminalbench.cli.completion import agents
from terminalbench.cli.options import PATH, experiment_argument, experiments_argument, json_option, root_option
from terminalbench.cli.output import print_json
from terminalbench.errors import EXIT_INCOMPLETE, EXIT_OK, EXIT_USAGE, UserError
from terminalbench.files import write_project_file
from terminalbench.text.names import typed
from terminalbench.text.numbers import plural

if TYPE_CHECKING:
    from terminalbench.experiments.experiment import Experiment


_WORDS = "terminalbench.words"


class _WithCommand(click.Command):
    """A command that takes what stands after `--` as the words of another one."""

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, without those words."""
        place = args.index("--") if "--" in args else len(args)
        ctx.meta[_WORDS] = tuple(args[place + 1 :])
        return super().parse_args(ctx, args[:place])

    @override
    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- PROGRAM [WORD]...]"]


@click.command("init", cls=_WithCommand)
@click.argument("folder", type=PATH, default=Path(), metavar="[DIR]")
@click.option(
    "--demo",
    "is_demo",
    is_flag=True,
    help="Write a demo that needs no key and shows a difference between two profiles.",
)
@click.option("--task", metavar="NAME", help="Make a task of your own, tasks/NAME, and an experiment on it.")
@click.option(
    "--agent",
    metavar="NAME",
    shell_complete=agents,
    help="Agent of the profiles. A new name creates your own agent, from PROGRAM if given. Default: claude-code.",
)
@click.option("--model", help="Model of the profiles.")
@click.option("--dataset", help="Where the tasks come from. Default: starter.")
@click.option(
    "--slug", help="Name of the file and of its results folder. Default: first, or the name of your new agent or task."
)
def init_command(
    folder: Path,
    is_demo: bool,
    task: str | None,
    agent: str | None,
    model: str | None,
    dataset: str | None,
    slug: str | None,
) -> None:
    """Write a commented experiment to start from, in DIR/experiments/. Asks no questions.

    tbench init --agent mine -- python3 agent.py {instruction} makes a profile of a program; words that name files of
    the project are copied in. The profile or the task is added to the experiment of --slug where that exists; without
    --slug, a task to the only experiment on tasks/.
    """
    from terminalbench.experiments.agents import agent_info
    from terminalbench.experiments.scaffold import close_to_one, demo, experiment_file, of_own_tasks, own, scaffold

    _check_texts(slug, {"--model": model, "--dataset": dataset})
    words = click.get_current_context().meta[_WORDS]
    if words and (agent is None or is_demo):
        raise UserError("a program after -- needs --agent NAME", hint="NAME becomes the name of the profile")
    named = experiment_file(folder, slug) if slug is not None else of_own_tasks(folder) if task else None
    is_plain = not (is_demo or model or dataset)
    if (words or (task and agent is None)) and is_plain and named is not None and named.exists():
        _extend(named, agent, task, words, folder)
        return
    is_new = agent is not None and (bool(words) or (agent_info(agent) is None and not close_to_one(agent)))
    others = {"--model": model, "--dataset": dataset} | ({"--slug": slug} if is_demo else {})
    if (is_demo or task or is_new) and (given := [name for name, value in others.items() if value]):
        raise UserError(f"{given[0]} cannot be combined with --demo, --task or an agent of your own")
    if is_demo and (task or agent):
        raise UserError("--demo cannot be combined with --task or --agent")
    if task and agent and not is_new:
        what = f"--task needs a new name for --agent: {agent} exists already"
        raise UserError(what, hint="leave out --agent, then add a profile to the file")
    if is_demo:
        files, following = demo(folder), "run"
    elif task or is_new:
        files, following = own(folder, agent, task, words, slug), "run" if agent else "check"
    else:
        files = scaffold(folder, agent or "claude-code", model, dataset or "starter", slug or "first")
        following = "plan"
    _write(files, following)


def _extend(experiment: Path, agent: str | None, task: str | None, words: tuple[str, ...], folder: Path) -> None:
    """Add a profile, or a task, to an experiment that exists; the rest of its text stays as it is."""
    from terminalbench.experiments.config import load
    from terminalbench.experiments.scaffold import extended, task_files

    before, changed = experiment.read_text(encoding="utf-8"), extended(experiment, agent, task, words, folder)
    files = task_files(folder, task) if task else {}
    if there := next((path for path in files if path.exists()), None):
        raise UserError("exists already", where=str(there), hint="choose another name")
    for path, text in files.items():
        _put(path, text)
    write_project_file(experiment, changed)
    try:
        load(experiment)
    except UserError:
        write_project_file(experiment, before)  # it says what is wrong, and the file is as it was
        raise
    click.echo(f"changed: {experiment}")
    click.echo(f"next: tbench {'run' if agent else 'check'} {typed(experiment)}")


def _check_texts(slug: str | None, others: dict[str, str | None]) -> None:
    """Refuse a text that would break the file into which it goes as it is."""
    from terminalbench.experiments.config import RESERVED, RESERVED_SLUGS
    from terminalbench.experiments.tables import SLUG, SLUG_DOC

    if slug is not None and not re.fullmatch(SLUG, slug):
        raise UserError(f"--slug must be {SLUG_DOC}")
    if slug is not None and slug.startswith(RESERVED_SLUGS):
        raise UserError(f"--slug {RESERVED}")
    for name, value in others.items():
        if value is not None and re.search(r'["\\\x00-\x1f]', value):
            raise UserError(f"{name} must not contain quotes, backslashes or control characters")


def _write(files: dict[Path, str], following: str) -> None:
    """Write them, the experiment (the first) last; nothing when one is there that is not shared by experiments."""
    from terminalbench.experiments.config import load
    from terminalbench.experiments.scaffold import GITIGNORE, SHARED

    experiment, *others = files
    for path in files:
        if path.name not in SHARED and path.exists():
            other = "choose another name, or another folder"
            hint = f"tbench run {typed(path)} runs it; or choose another folder" if following == "run" else other
            raise UserError("exists already", where=str(path), hint=hint)
    for path in [*others, experiment]:
        if path.name != GITIGNORE and path.exists():
            continue
        _put(path, files[path])
    load(experiment)
    click.echo(f"next: tbench {following} {typed(experiment)}")


def _put(path: Path, text: str) -> None:
    """Write a file of the project, scripts so that they can be run, and say so."""
    try:
        write_project_file(path, text)
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise UserError(what, where=str(path), hint="name another folder: tbench init DIR") from error
    if path.suffix == ".sh":
        path.chmod(path.stat().st_mode | 0o111)
    click.echo(f"written: {path}")


@click.command("validate")
@experiments_argument
@root_option
def validate_command(experiments: tuple[Path, ...], root: Path | None) -> int:
    """Check experiment files, and report every problem of every file at once. Writes nothing."""
    worst = EXIT_OK
    for file in experiments:
        try:
            _check(file, root)
        except UserError as error:
            worst = EXIT_USAGE
            for line in error.lines():
                click.echo(line, err=True)
    return worst


def _check(file: Path, root: Path | None) -> None:

    from terminalbench.experiments.config import is_training_plan, load
    from terminalbench.experiments.environments import environment_needs
    from terminalbench.experiments.quarantine import is_quarantine_file, read_quarantine_file
    from terminalbench.runner.environment import left_out_here
    from terminalbench.runner.repository import env_file_notes

    if is_quarantine_file(file):
        held = len(read_quarantine_file(file))
        click.echo(f"{file}: ok: {plural(held, 'task')} in quarantine")
        return
    if is_training_plan(file):
        from terminalbench.trainer.check import check_plan, forecast_lines, idle_looks

        plan = check_plan(file, root)
        click.echo(f"{file}: ok: a training plan of {plural(plan.table.nights, 'night')} (tbench trainer run)")
        if (note := idle_looks(plan)) is not None:
            click.echo(f"{file}: note: {note}")
        for line in forecast_lines(plan):
            click.echo(f"{file}: {line}")
        return
    experiment = load(file, root, thorough=True)
    notes = [*env_file_notes(profile.env_file for profile in experiment.profiles), *_images(experiment)]
    tasks, profiles = len(experiment.tasks), len(experiment.profiles)
    trials = tasks * profiles * experiment.run.attempts
    size = f"{plural(tasks, 'task')} x {plural(profiles, 'profile')} x {experiment.run.attempts}"
    click.echo(f"{file}: ok: {size} = {plural(trials, 'trial')}")
    for task in experiment.tasks:
        if (reason := experiment.quarantine.get((task.dataset, task.id))) is not None:
            click.echo(f"{file}: note: {task.id} is quarantined and will not run: {reason}")
    missing = left_out_here(experiment.profiles, experiment.root, os.environ, experiment.run.container_env)
    if missing:
        many = sum(map(len, missing.values()))
        click.echo(f"{file}: note: a run here would leave out {many} of {plural(profiles, 'profile')}:")
    for why, keys in missing.items():
        click.echo(f"{file}: note: a run leaves out {', '.join(keys)}: {why}")
    for note in (*experiment.notes, *environment_needs(experiment), *notes):
        click.echo(f"{file}: note: {note}")


def _images(experiment: "Experiment") -> list[str]:
    """Return what is to be said of the images of its tasks; an error when none of the tasks could run here."""
    from terminalbench.experiments.plan import exclusion_lines
    from terminalbench.records.trial import TaskRef
    from terminalbench.runner.images import books_of

    tasks = {TaskRef(task.id, task.dataset): task.source.folder for task in experiment.tasks}
    folders = {ref: folder for ref, folder in tasks.items() if folder is not None}
    books = books_of(folders, experiment.run, experiment.root, os.environ)
    left_out = books.exclusions()
    lines = exclusion_lines(left_out)
    if left_out and len(left_out) == len(experiment.tasks):
        listed = "\n  ".join(lines)
        raise UserError(
            f"none of {plural(len(left_out), 'task')} can run here:\n  {listed}", where=str(experiment.file)
        )
    return [*(f"a run leaves out {line}" for line in lines), *books.lines()]


@click.command("diff")
@experiment_argument
@click.argument("a")
@click.argument("b")
@json_option
@root_option
def diff_command(experiment: Path, a: str, b: str, as_json: bool, root: Path | None) -> None:
    """Show what differs between profiles A and B, prompt and configuration text included.

    KEY@N is a profile as batch N was planned with it: `tbench diff FILE mine@0 mine` shows which files changed since.
    """
    from terminalbench.experiments.config import load
    from terminalbench.experiments.profile_changes import differences
    from terminalbench.lab.plan import treatment

    loaded = load(experiment, root)
    old, new = (treatment(loaded, name) for name in (a, b))
    found = differences(old.content, new.content)
    if as_json:
        aspects = [{"aspect": d.aspect, a: d.old, b: d.new} for d in found]
        document = {"a": {"key": a, "id": old.id}, "b": {"key": b, "id": new.id}, "differences": aspects}
        print_json(document)
        return
    click.echo(f"--- {a} {old.id}\n+++ {b} {new.id}")
    if not found:
        click.echo("the same treatment")
    for difference in found:
        click.echo(f"\n{difference.aspect}")
        for line in difference.lines():
            click.echo(f"  {line}")


@click.command("migrate")
@experiment_argument
@click.option("-o", "--output", type=PATH, metavar="NEW.toml", help="Write here. Default: print it.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def migrate_command(experiment: Path, output: Path | None, force: bool) -> int:
    """Convert an experiment in an older format to version 2, and list the changes.

    Knows `[tasks] dataset/ids` with `[[profiles]] key = ...`, and `[tasks.<id>]` tables. Exit code 3: the result has
    problems left, which are named.
    """
    from terminalbench.experiments.migrate import migrate, remaining

    if output is not None and output.exists() and not force:
        raise UserError("exists already", where=str(output), hint="choose another name, or give --force")
    migration = migrate(experiment)
    for change in migration.changes or ("nothing to change: the file already has version 2",):
        click.echo(f"{experiment}: {change}", err=True)
    if output is None:
        click.echo(migration.text, nl=False)
    else:
        write_project_file(output, migration.text)
        click.echo(f"written: {output} (next: tbench validate {typed(output)})", err=True)
    left = remaining(migration.text, output or experiment)
    for line in left.lines() if left is not None else ():
        click.echo(
            line if output is not None else f"to be fixed by hand, with line numbers of the new file: {line}", err=True
        )
    return EXIT_OK if left is None else EXIT_INCOMPLETE


@click.command("schema")
@click.option("--markdown", is_flag=True, help="Print the documentation of every key instead.")
def schema_command(markdown: bool) -> None:
    """Print the JSON Schema of the experiment file, for editors.

    In VS Code with Even Better TOML: save it as experiment.schema.json and start the TOML with
    "#:schema ./experiment.schema.json".
    """
    import json

    from terminalbench.experiments.schema import json_schema, key_tables

    text = key_tables() if markdown else json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
    click.echo(text, nl=False)
