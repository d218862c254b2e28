"""`tbench trainer report`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from terminalbench.cli.options import PATH
from terminalbench.cli.output import text_width
from terminalbench.cli.trainer.options import on_training

if TYPE_CHECKING:
    from terminalbench.trainer.training import Training


@click.command("report")
@on_training
@click.option("-o", "--output", type=PATH, metavar="FILE", help="Write it here, not to standard output.")
def command(training: "Training", output: Path | None) -> None:
    """Write the report of a training, Markdown: what was tried, kept, rejected, at what cost, and what is claimed."""
    from textwrap import fill

    from terminalbench.files import write_text
    from terminalbench.text.foreign import printable
    from terminalbench.trainer.story import report

    text = report(
        training.lineage, training.slug, training.planned, training.nights, training.holdout, training.outside
    )
    if training.declared is None:
        text += f"\nNot begun: `{training.run_command}`\n"
    if output is not None:
        write_text(output, text)
    else:
        for line in text.splitlines():
            click.echo(fill(printable(line), text_width(), subsequent_indent="  ", break_long_words=False))
