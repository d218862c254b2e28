"""`tbench trainer promote`."""

from typing import TYPE_CHECKING

import click

from terminalbench.cli.trainer.options import on_training, reason_option

if TYPE_CHECKING:
    from terminalbench.trainer.training import Training


@click.command("promote")
@on_training
@click.argument("profile")
@reason_option
def command(training: "Training", profile: str, reason: str) -> None:
    """Make a profile of the lineage its champion yourself. It is recorded as your word, and claims no gain."""
    from terminalbench.trainer.lineage import Why

    found = training.lineage.find(profile)
    made = training.store.crown(training.lineage_name, found.id, Why.BY_HAND, reason=reason)
    click.echo(f"champion of {training.lineage_name}: {made.id} (before: {made.before})")
