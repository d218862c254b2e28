"""`tbench trainer rollback`."""

from typing import TYPE_CHECKING

import click

from terminalbench.cli.trainer.options import on_training, reason_option

if TYPE_CHECKING:
    from terminalbench.trainer.training import Training


@click.command("rollback")
@on_training
@reason_option
def command(training: "Training", reason: str) -> None:
    """Bring back the champion before this one, yourself."""
    from terminalbench.errors import UserError
    from terminalbench.trainer.lineage import Why

    control = training.lineage.control
    if control is None:
        raise UserError("there is no champion before this one", where=training.lineage_name)
    made = training.store.crown(training.lineage_name, control.id, Why.BY_HAND, reason=reason)
    click.echo(f"champion of {training.lineage_name}: {made.id} (before: {made.before})")
