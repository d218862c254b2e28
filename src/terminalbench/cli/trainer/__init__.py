"""`tbench trainer`: one file per command, each loaded when it is used."""

import click

from terminalbench.cli.commands import GROUPS
from terminalbench.cli.lazy import LazyCommandGroup


@click.group("trainer", cls=LazyCommandGroup, sections=GROUPS["trainer"], package=__name__, no_args_is_help=True)
def command() -> None:
    """Train a profile by a plan: variants are tried at night; what is proven better becomes champion."""
