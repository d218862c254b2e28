"""Options that the commands of `tbench swebench-pro` share."""

from pathlib import Path
from typing import Any

import click

from terminalbench.cli.options import PATH


def instance_picks(command: Any) -> Any:
    """`--language`, `--instances` and `--max-instances`, which pick some of the instances."""
    options = (
        click.option(
            "--language", metavar="NAME", help="Only this language: python, go, javascript (js), typescript (ts)."
        ),
        click.option(
            "--instances", multiple=True, metavar="PART[,PART]", help="Only instances with one of these in their id."
        ),
        click.option(
            "--max-instances", type=click.IntRange(min=0), default=0, metavar="N", help="At most so many; 0 is all."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


results_file_option: Any = click.option(
    "--results",
    type=PATH,
    default=Path("output/swe_bench_pro/results.jsonl"),
    show_default=True,
    metavar="FILE",
    help="The results.jsonl of an experiment.",
)

output_dir_option: Any = click.option(
    "--output-dir",
    type=PATH,
    default=Path("output/swe_bench_pro"),
    show_default=True,
    metavar="DIR",
    help="Folder of the experiment: its batch, and all that is made of it.",
)


def log_file_of(context: click.Context, _option: click.Parameter, given: Path | None) -> Path | None:
    """The log file, given to the command or before it, to the group."""
    return given or (context.parent.params.get("log_file") if context.parent is not None else None)


log_file_option: Any = click.option(
    "--log-file", type=PATH, metavar="FILE", callback=log_file_of, help="Append a line for each trial to a file."
)
