"""`tbench trainer diff`."""

from typing import TYPE_CHECKING

import click

from terminalbench.cli.output import text_width
from terminalbench.cli.trainer.options import on_training

if TYPE_CHECKING:
    from terminalbench.trainer.training import Training


@click.command("diff")
@on_training
@click.argument("profile", required=False)
def command(training: "Training", profile: str | None) -> None:
    """Show what makes a profile another one than its parent, and so on back to the first. Default: the champion."""
    from itertools import pairwise
    from textwrap import fill

    from terminalbench.errors import UserError
    from terminalbench.experiments.profile_changes import differences
    from terminalbench.text.foreign import printable

    lineage = training.lineage
    if lineage.champion is None:
        raise UserError("has no champion yet", where=training.lineage_name, hint=training.run_command)
    line = lineage.line(lineage.find(profile) if profile is not None else lineage.champion)
    for one, parent in pairwise(line):
        said = printable(f"{one.id} of {parent.id}: {one.reason} ({one.source})")
        click.echo(fill(said, text_width(), subsequent_indent="  "))
        for found in differences(parent.content, one.content):
            click.echo(f"  {printable(found.aspect)}")
            for text in found.lines():
                click.echo(f"    {printable(text)}")
    said = printable(f"{line[-1].id}: {line[-1].reason} ({line[-1].source})")
    click.echo(fill(said, text_width(), subsequent_indent="  "))
