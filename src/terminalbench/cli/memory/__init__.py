"""`tbench memory`: one module for each section of commands, loaded when it is used."""

import click

from terminalbench.cli.commands import GROUPS
from terminalbench.cli.lazy import LazyCommandGroup


@click.group("memory", cls=LazyCommandGroup, sections=GROUPS["memory"], package=__name__, no_args_is_help=True)
def command() -> None:
    """The lessons of a project: .terminalbench/memory.jsonl, a log that every command here only appends to."""
