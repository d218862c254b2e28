"""`tbench init`."""

import re
from pathlib import Path
from typing import override

import click

from terminalbench.cli.completion import agents
from terminalbench.cli.options import PATH
from terminalbench.errors import UserError
from terminalbench.files import write_project_file
from terminalbench.text.paths import typed

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
def command(
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
