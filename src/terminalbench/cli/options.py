"""Arguments and options that several commands share."""

import re
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, override

import click

from terminalbench.cli.completion import names_of

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
