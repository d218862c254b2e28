"""`tbench trainer status`."""

from typing import TYPE_CHECKING

import click

from terminalbench.cli.options import json_option
from terminalbench.cli.output import print_json, text_width
from terminalbench.cli.trainer.options import on_training

if TYPE_CHECKING:
    from terminalbench.trainer.training import Training


@click.command("status")
@on_training
@json_option
def command(training: "Training", as_json: bool) -> None:
    """Show where a training stands: nights, champion, challenger, evidence so far."""
    from textwrap import fill

    from terminalbench.text.foreign import printable
    from terminalbench.trainer.story import claim, sealed_line, spent, standing

    lineage, nights = training.lineage, training.nights
    last = lineage.crowned[-1] if lineage.crowned else None
    if as_json:
        after = nights[-1].after if nights else None
        told = {"plan": training.slug, "nights": len(nights), "planned": training.planned, "state": after}
        print_json(
            {
                **told,
                "champion": last,
                "simulated": training.simulated,
                "declared": training.declared,
                "now": training.under_way,
            }
        )
        return
    simulated = " (simulated)" if training.simulated else ""
    lines = [f"{training.slug}: {standing(nights, training.planned)}{simulated}"]
    if training.declared is None:
        lines.append(f"not begun: nothing is declared or measured yet; {training.run_command}")
    else:
        lines.append(f"spent: {spent(nights, training.holdout)}")
    if training.under_way is not None:
        lines.append(f"now: {training.under_way}")
    if last is not None:
        lines.append(f"champion: {last.id}, {claim(last)}")
    judged = [night.confirm for night in nights if night.confirm is not None]
    if judged and judged[-1].verdict is not None:
        lines.append(f"last verdict: {judged[-1].new}: {judged[-1].verdict.reason}")
    lines += [f"holdout: {sealed_line(one)}" for one in training.holdout]
    for line in lines:
        click.echo(fill(printable(line), text_width(), subsequent_indent="  "))
