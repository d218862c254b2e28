"""`tbench gym`: one file per command, each loaded when it is used."""

import click

from terminalbench.cli.commands import GROUPS
from terminalbench.cli.lazy import LazyCommandGroup


@click.group("gym", cls=LazyCommandGroup, sections=GROUPS["gym"], package=__name__, no_args_is_help=True)
def command() -> None:
    """The environments that profiles are trained on, and their split into train, dev and holdout."""
