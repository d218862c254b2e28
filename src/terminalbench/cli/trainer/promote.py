"""`tbench trainer promote`."""

from typing import TYPE_CHECKING

import click

from terminalbench.cli.trainer.options import crown_by_hand, on_training, reason_option

if TYPE_CHECKING:
    from terminalbench.trainer.training import Training


@click.command("promote")
@on_training
@click.argument("profile")
@reason_option
def command(training: "Training", profile: str, reason: str) -> None:
    """Make a profile of the lineage its champion yourself. It is recorded as your word, and claims no gain."""
    crown_by_hand(training, training.lineage.find(profile).id, reason)
