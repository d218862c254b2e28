"""`tbench trainer rollback`."""

from typing import TYPE_CHECKING

import click

from terminalbench.cli.trainer.options import on_training, reason_option

if TYPE_CHECKING:
    from terminalbench.trainer.run import Training


@click.command("rollback")
@on_training
@reason_option
def command(training: "Training", reason: str) -> None:
    """Bring back the champion before this one, yourself."""
    from terminalbench.errors import UserError
    from terminalbench.trainer.lineage import Why

    control = training.lineage.control
    if control is None:
        raise UserError("there is no champion before this one", where=training.plan.lineage)
    made = training.store.crown(training.plan.lineage, control.id, Why.BY_HAND, reason=reason)
    click.echo(f"champion of {training.plan.lineage}: {made.id} (before: {made.before})")
