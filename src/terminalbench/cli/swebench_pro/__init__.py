"""`tbench swebench-pro`: one file per command, each loaded when it is used."""

import click

from terminalbench.cli.commands import GROUPS
from terminalbench.cli.lazy import CommandTable


@click.group("swebench-pro", cls=CommandTable, sections=GROUPS["swebench-pro"], package=__name__, no_args_is_help=True)
def command() -> None:
    """SWE-Bench Pro as Harbor tasks: an instance is a task, an arm is a profile, a pair of both is a trial."""
