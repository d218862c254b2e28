"""`tbench trainer history`."""

from typing import TYPE_CHECKING

import click

from terminalbench.cli.options import json_option
from terminalbench.cli.output import print_json, text_width
from terminalbench.cli.trainer.options import on_training

if TYPE_CHECKING:
    from terminalbench.trainer.training import Training


@click.command("history")
@on_training
@json_option
def command(training: "Training", as_json: bool) -> None:
    """Show every comparison of a training, rejected and undecided ones as well, and every change of champion."""
    from textwrap import fill

    from terminalbench.text.foreign import printable
    from terminalbench.trainer.story import claim, ledger

    lineage = training.lineage
    if as_json:
        print_json({"nights": training.nights, "champions": lineage.crowned})
        return
    for one in ledger(training.nights):
        said = printable(f"{one.night:3}  {one.part:8} {one.profile}  {one.what}")
        click.echo(fill(said, text_width(), subsequent_indent=" " * 14))
    for one in lineage.crowned:
        click.echo(fill(printable(f"{one.time[:16]}  {one.id}  {claim(one)}"), text_width(), subsequent_indent="    "))
    if not training.nights:
        click.echo(f"no night is over yet: {training.run_command}")
