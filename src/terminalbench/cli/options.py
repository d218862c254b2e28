"""Arguments and options that several commands share, and the selection of batches that they name.

Notes about a selection go to the error stream.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, override

import click

from terminalbench.cli.completion import batch_names, names_of
from terminalbench.errors import UserError

if TYPE_CHECKING:
    from terminalbench.experiments.batch import Batch
    from terminalbench.lab.select import SelectedBatches, Target


ListOptions = ("--tasks", "--profiles", "--targets")


class ListCommand(click.Command):
    """A command whose list options take several values: `--tasks a b`, `--tasks a,b` and `--tasks a --tasks b`."""

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, after spreading the values of list options."""
        return super().parse_args(ctx, _spread(args, strict=not ctx.resilient_parsing))


def _spread(args: list[str], *, strict: bool) -> list[str]:
    spread: list[str] = []
    option: str | None = None
    given: dict[str, int] = {}
    for argument in args:
        name, separator, value = argument.partition("=")
        if name in ListOptions:
            option = name
            values = value.split(",") if separator else []
            given.setdefault(option, 0)
        elif argument.startswith("-") or argument.endswith(".toml") or option is None:
            spread.append(argument)
            option = None
            continue
        else:
            values = argument.split(",")
        for item in filter(None, values):
            spread += [option, item]
            given[option] += 1
    for name, count in given.items():
        if strict and not count:
            # An empty shell variable must not turn "these tasks" into "all tasks".
            raise click.UsageError(f"{name} is empty: give it at least one name")
    return spread


PATH: Any = click.Path(path_type=Path)

experiment_argument: Any = click.argument("experiment", type=PATH, metavar="EXPERIMENT.toml")
experiments_argument: Any = click.argument(
    "experiments", type=PATH, metavar="EXPERIMENT.toml...", nargs=-1, required=True
)
root_option: Any = click.option(
    "--root",
    type=PATH,
    metavar="DIR",
    help="Folder that relative paths start from. Default: the nearest parent folder with .git, pyproject.toml or "
    ".tbench.",
)


def picks(command: Any) -> Any:
    """`--tasks` and `--profiles`, which pick some of an experiment."""
    for name, values in (("profiles", "KEY..."), ("tasks", "ID...")):
        only, complete = f"Only these {name}; globs allowed.", names_of(name)
        command = click.option(f"--{name}", multiple=True, metavar=values, help=only, shell_complete=complete)(command)
    return command


attempts_option: Any = click.option(
    "--attempts",
    type=click.IntRange(1, 1000),
    metavar="K",
    help="Trials of each task by each profile. Default: run.attempts of the file.",
)


def labels_of(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """`NAME=VALUE` as a table; a name that is given twice is refused, since only one of its values could hold."""
    from terminalbench.experiments.tables import SLUG, SLUG_DOC

    pairs = [text.partition("=") for text in given]
    for name, sign, _ in pairs:
        if not sign or not re.fullmatch(SLUG, name):
            raise click.BadParameter(f'must be NAME=VALUE, the name of {SLUG_DOC}; not "{name}{sign}..."')
    counts = Counter(name for name, _, _ in pairs)
    twice = next((name for name, count in counts.items() if count > 1), None)
    if twice is not None:
        raise click.BadParameter(f'"{twice}" is given {counts[twice]} times; a batch has one value of a label')
    return {name: value for name, _, value in pairs}


label_option: Any = click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="NAME=VALUE",
    callback=labels_of,
    help="A label of the batch, in addition to those of the file.",
)
watch_option: Any = click.option(
    "--watch",
    is_flag=True,
    help="Show live progress. Without a terminal, print a line for each finished trial.",
)


def _place_for_file(_context: click.Context, _option: click.Parameter, file: Path | None) -> Path | None:
    """A file that can be written at the end: what is wrong with its place is said before anything runs."""
    if file is not None and (file.is_dir() or not file.absolute().parent.is_dir()):
        raise click.BadParameter(f"{file} is a folder, or its folder does not exist; name a file in an existing folder")
    return file


junit_option: Any = click.option(
    "--junit",
    type=PATH,
    metavar="FILE",
    callback=_place_for_file,
    help="At the end, write the trials as JUnit XML: failed trials as failures, broken ones as errors, trials not "
    "run as skipped.",
)
json_option: Any = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
results_option: Any = click.option(
    "--results",
    type=PATH,
    metavar="DIR",
    help="Results folder. Default: results/ of the project that the current folder belongs to.",
)
batch_option: Any = click.option(
    "--batch", type=click.IntRange(min=0), help="Number of the batch of the experiment. Default: the latest."
)


def reading_options(command: Callable[..., Any]) -> Any:
    """Return how results of another tool are read: `--column`, `--pass-at`, `--dataset`, `--format` are `reading`."""

    @wraps(command)
    def called(
        columns: dict[str, str], dataset: str | None, form: str | None, pass_at: float | None, **rest: Any
    ) -> Any:
        from terminalbench.formats.row import ReadOptions

        profile = rest.pop("profile", None)
        reading = ReadOptions(columns=columns, dataset=dataset, format=form, profile=profile, pass_at=pass_at)
        return command(reading=reading, **rest)

    column = click.option(
        "--column",
        "columns",
        multiple=True,
        metavar="NAME=COLUMN",
        callback=_columns,
        help="Column of the file that holds NAME (task, passed, cost, ...), as in passed=is_ok; NAME= ignores it. "
        "Default: recognised by its name.",
    )
    pass_at = click.option("--pass-at", type=float, metavar="N", help="The lowest reward that counts as a pass.")
    dataset = click.option("--dataset", metavar="NAME", help="Dataset that the tasks in the file belong to.")
    form = click.option(
        "--format", "form", metavar="NAME", help="Format of the file. Default: recognised by its content."
    )
    return column(pass_at(dataset(form(called))))


def _columns(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for value in values:
        name, sign, column = value.partition("=")
        if not sign or not name:
            raise click.BadParameter(f'"{value}" is not NAME=COLUMN, as in passed=is_ok')
        found[name.strip()] = column
    return found


@dataclass(frozen=True)
class BatchChoice:
    """The words of a command line that name a batch."""

    name: Path | None = None
    number: int | None = None
    results: Path | None = None
    root: Path | None = None

    def refuse_name(self) -> None:
        """Refuse the name of a batch together with `--all`."""
        if self.name is not None or self.number is not None:
            raise click.UsageError("--all cannot be combined with a target")


def on_batch(command: Callable[..., int | None]) -> Any:
    """A command on one batch: its target, `--batch`, `--results` and `--root` become `where`."""

    @wraps(command)
    def called(target: Path | None, batch: int | None, results: Path | None, root: Path | None, **rest: Any) -> Any:
        return command(where=BatchChoice(target, batch, results, root), **rest)

    declared = batch_option(results_option(root_option(called)))
    return click.argument(
        "target", type=PATH, required=False, metavar="[EXPERIMENT.toml|BATCH]", shell_complete=batch_names
    )(declared)


def on_batches(command: Callable[..., int | None]) -> Any:
    """A command on the batches that an experiment, a batch folder or a folder of Harbor jobs names: `selected`."""

    @wraps(command)
    def called(experiment: Path | None, batch: str | None, results: Path | None, root: Path | None, **rest: Any) -> Any:
        from terminalbench.lab.select import select_numbered

        return command(selected=noted(select_numbered(experiment, batch, results, root)), **rest)

    batches = "Numbers of the batches of the experiment. Default: the latest with data."
    declared = click.option("--batch", metavar="N|N,M|all", help=batches)(results_option(root_option(called)))
    target = "[EXPERIMENT.toml|BATCH|JOBS]"
    return click.argument("experiment", type=PATH, metavar=target, required=False, shell_complete=batch_names)(declared)


def one_batch(where: BatchChoice, *, own: bool = False, foreign: bool = False) -> "Target":
    """One batch: see `terminalbench.lab.select.find_target`."""
    from terminalbench.lab.select import SelectedBatches, find_target

    found = find_target(where.name, where.number, where.results, where.root, own=own, foreign=foreign)
    return noted(SelectedBatches((found,))).targets[0]


def noted(selected: "SelectedBatches") -> "SelectedBatches":
    """The batches, after what is to be known about them was said."""
    for target in selected.targets:
        if target.note is not None:
            click.echo(f"note: {target.note}", err=True)
    return selected


def batch_to_watch(where: BatchChoice) -> "Batch":
    """The batch that is named, or the one a folder stands for; else the one that runs, else the newest.

    Of several that run it is this project's before any other, then the one started last; the others are said.
    """
    from terminalbench.lab.select import live_batches, of_this_project, watched_batch

    name = where.name
    if name is not None and name.is_dir() and not (name / "plan.json").is_file():
        return watched_batch(name)
    running = live_batches(where.results) if name is None and where.number is None else []
    if not running:
        return one_batch(where).batch
    elsewhere = "" if where.results is not None or of_this_project(running[0]) else ", which belongs to another project"
    click.echo(f"watching {running[0].folder}{elsewhere}", err=True)
    if running[1:]:
        click.echo(f"also running: {', '.join(str(other.folder) for other in running[1:])}", err=True)
    return running[0]


def batch_to_steer(where: BatchChoice) -> "Batch":
    """The batch that is named, or the only one that runs: in this project, or anywhere."""
    from terminalbench.lab.select import live_batches, of_this_project, refuse_several

    if where.name is not None or where.number is not None:
        return one_batch(where).batch
    running = live_batches(where.results)
    if not running:
        raise UserError("nothing is running", hint="tbench status shows what runs")
    if sum(map(of_this_project, running)) != 1:
        refuse_several(running, "name one with --in")
    return running[0]  # this project's come first


def batches_to_end(where: BatchChoice, *, everything: bool) -> "list[Batch]":
    """The batch that is named; else the only one that runs in the results folder, or the newest when none does.

    The newest may have left something behind. `everything`: all that this user's runs have announced; with a results
    folder those of it, and all others that run there.
    """
    from terminalbench.lab.select import live_batches, refuse_several, results_root
    from terminalbench.live.processes import announced_batches

    if everything:
        where.refuse_name()
        if where.results is None:
            return announced_batches()
    elif where.name is not None or where.number is not None:
        return [one_batch(where, own=True).batch]
    folder = results_root(where.results)
    running = live_batches(folder)
    if everything:
        there = [batch for batch in announced_batches() if batch.folder.resolve().is_relative_to(folder)]
        return list({batch.folder.resolve(): batch for batch in (*there, *running)}.values())
    refuse_several(running, "name the batch to end, or give --all")
    return running or [one_batch(where).batch]
