"""`tbench episodes`: one file per command, each loaded when it is used."""

import click

from terminalbench.cli.commands import GROUPS
from terminalbench.cli.lazy import LazyCommandGroup


@click.group("episodes", cls=LazyCommandGroup, sections=GROUPS["episodes"], package=__name__, no_args_is_help=True)
def command() -> None:
    """The episodes of a project: each iteration of every night, by profile."""
