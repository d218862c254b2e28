"""`tbench swebench-pro`, and the options that its commands share."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from terminalbench.cli.commands import GROUPS, group
from terminalbench.cli.options import PATH

if TYPE_CHECKING:
    from terminalbench.swebench_pro.convert import Picks


MODULES = {name: title.lower() for title, commands in GROUPS["swebench-pro"].items() for name in commands}


@group("swebench-pro", __name__, MODULES)
@click.option(
    "--log-file", type=PATH, metavar="FILE", help="Append a line for each trial to this file (with experiment only)."
)
@click.pass_context
def command(context: click.Context, log_file: Path | None) -> None:
    """SWE-Bench Pro as Harbor tasks: an instance is a task, an arm is a profile, a pair of both is a trial."""
    if log_file is not None and context.invoked_subcommand != "experiment":
        raise click.UsageError("--log-file works only with the command experiment")


def _shard(_context: click.Context, _option: click.Parameter, given: str | None) -> tuple[int, int] | None:
    if given is None:
        return None
    first, _, many = given.partition("/")
    if not (first.isdecimal() and many.isdecimal() and 1 <= int(first) <= int(many)):
        raise click.BadParameter(
            f'"{given}" is not a part; write I/N, such as 1/4 for the first of four', param_hint="--shard"
        )
    return int(first), int(many)


shard_option: Any = click.option(
    "--shard",
    metavar="I/N",
    callback=_shard,
    help="Only part I of N of the instances; tbench swebench-pro project merges the parts.",
)

executor_option: Any = click.option(
    "--executor",
    metavar="NAME",
    help="What starts the trials: local, or ray for the cores of a cluster (docs/scaling.md).",
)


def picks_of(given: dict[str, Any]) -> "Picks":
    """Return what the options of `instance_picks` pick; they are taken out of `given`."""
    from terminalbench.swebench_pro.convert import Picks
    from terminalbench.swebench_pro.dataset import language_of, parts_of

    language = given.pop("language")
    return Picks(
        language=language_of(language) if language else None,
        parts=parts_of(given.pop("instances")),
        most=given.pop("max_instances"),
        sample=given.pop("sample"),
        seed=given.pop("seed"),
        stratify=given.pop("stratify"),
        shard=given.pop("shard"),
    )


def instance_picks(command: Any) -> Any:
    """The options that pick some of the instances; `picks_of` reads them."""
    options = (
        click.option(
            "--language", metavar="NAME", help="Only this language: python, go, javascript (js), typescript (ts)."
        ),
        click.option(
            "--instances", multiple=True, metavar="PART[,PART]", help="Only instances whose id contains one of these."
        ),
        click.option(
            "--max-instances",
            type=click.IntRange(min=0),
            default=0,
            show_default=False,
            metavar="N",
            help="At most N instances; 0 means all.",
        ),
        click.option(
            "--sample",
            type=click.IntRange(min=0),
            default=0,
            show_default=False,
            metavar="N",
            help="Draw a sample of N instances, from each stratum in proportion. With the same seed, a larger sample "
            "contains a smaller one.",
        ),
        click.option("--seed", type=int, default=0, metavar="S", help="Seed of --sample."),
        click.option(
            "--stratify",
            type=click.Choice(["repository", "language"]),
            default="repository",
            help="Strata of --sample.",
        ),
        shard_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


results_file_option: Any = click.option(
    "--results",
    type=PATH,
    default=Path("output/swe_bench_pro/results.jsonl"),
    metavar="FILE",
    help="results.jsonl of an experiment.",
)

output_dir_option: Any = click.option(
    "--output-dir",
    type=PATH,
    default=Path("output/swe_bench_pro"),
    metavar="DIR",
    help="Folder of the experiment: its batch, and everything made from it.",
)


def log_file_of(context: click.Context, _option: click.Parameter, given: Path | None) -> Path | None:
    """The log file, given to the command or before it, to the group."""
    return given or (context.parent.params.get("log_file") if context.parent is not None else None)


log_file_option: Any = click.option(
    "--log-file", type=PATH, metavar="FILE", callback=log_file_of, help="Append a line for each trial to a file."
)
