"""`tbench trainer rollback`."""

from typing import TYPE_CHECKING

import click

from terminalbench.cli.trainer.options import crown_by_hand, on_training, reason_option

if TYPE_CHECKING:
    from terminalbench.trainer.training import Training


@click.command("rollback")
@on_training
@reason_option
def command(training: "Training", reason: str) -> None:
    """Bring back the champion before this one, yourself; called again, the one before that."""
    from terminalbench.errors import UserError

    before = training.lineage.earlier
    if before is None:
        raise UserError("there is no champion before this one", where=training.lineage_name)
    crown_by_hand(training, before.id, reason)
