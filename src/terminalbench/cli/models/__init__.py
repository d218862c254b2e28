"""`tbench models`: one file per command, each loaded when it is used."""

import click

from terminalbench.cli.commands import GROUPS
from terminalbench.cli.lazy import LazyCommandGroup


@click.group("models", cls=LazyCommandGroup, sections=GROUPS["models"], package=__name__, no_args_is_help=True)
def command() -> None:
    """The models that can be asked, by the names that profiles, judges and nights give them."""
