"""`tbench trainer holdout`."""

from pathlib import Path

import click

from terminalbench.cli.options import json_option, root_option
from terminalbench.cli.output import print_json, text_width
from terminalbench.cli.trainer.options import measuring, plan_argument
from terminalbench.errors import EXIT_INCOMPLETE, EXIT_OK


@click.command("holdout")
@plan_argument
@click.option("--reason", required=True, metavar="TEXT", help="Why you look; it is kept with the look.")
@json_option
@root_option
def command(file: Path, reason: str, as_json: bool, root: Path | None) -> int:
    """Measure the champion against the profile that the training started with, on the sealed tasks.

    The look is recorded with its reason, and counted, before the first trial runs. It decides nothing: promote and
    rollback go by dev. One that was killed is gone on with, as the same look.

    Exit code 0: measured; 3: no held-out task was measured under both; 130: interrupted.
    """
    from textwrap import fill

    from terminalbench.errors import UserError
    from terminalbench.text.foreign import printable
    from terminalbench.text.paths import typed
    from terminalbench.trainer.holdout import measure_holdout
    from terminalbench.trainer.plan import load_plan
    from terminalbench.trainer.story import sealed_line
    from terminalbench.trainer.training import open_training

    training = open_training(file, root)
    if training.declared is None:
        raise UserError("has not begun: there is no champion to measure", where=str(file), hint=training.run_command)
    with measuring(file, f"tbench trainer holdout {typed(file)} --reason ..."):
        found = measure_holdout(load_plan(file, root), reason)
    if as_json:
        print_json({"holdout": found, "simulated": training.simulated})
    else:
        said = sealed_line(found) + (" (simulated)" if training.simulated else "")
        click.echo(fill(printable(said), text_width(), subsequent_indent="  "))
    measured = found.verdict is not None and found.verdict.difference is not None
    return EXIT_OK if measured else EXIT_INCOMPLETE
