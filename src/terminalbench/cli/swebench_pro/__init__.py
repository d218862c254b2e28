"""`tbench swebench-pro`: one module for each section of commands, loaded when it is used."""

from pathlib import Path

import click

from terminalbench.cli.commands import GROUPS
from terminalbench.cli.lazy import LazyCommandGroup
from terminalbench.cli.options import PATH


@click.group(
    "swebench-pro", cls=LazyCommandGroup, sections=GROUPS["swebench-pro"], package=__name__, no_args_is_help=True
)
@click.option(
    "--log-file", type=PATH, metavar="FILE", help="Append a line for each trial to this file (with experiment only)."
)
@click.pass_context
def command(context: click.Context, log_file: Path | None) -> None:
    """SWE-Bench Pro as Harbor tasks: an instance is a task, an arm is a profile, a pair of both is a trial."""
    if log_file is not None and context.invoked_subcommand != "experiment":
        raise click.UsageError("--log-file works only with the command experiment")
