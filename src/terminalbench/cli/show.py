"""`tbench show`."""

from pathlib import Path

import click

from terminalbench.cli.options import json_option
from terminalbench.cli.places import results_option, results_root
from terminalbench.cli.trials import find_trial
from terminalbench.errors import EXIT_OK


@click.command("show")
@click.argument("trial")
@results_option
@json_option
def command(trial: str, results: Path | None, as_json: bool) -> int:
    """Show one trial: how it ended and why, what it used, what reached the agent, where its files are.

    TRIAL is its name, or the beginning of it, as in "git-lost-commit__ubopkpt".
    """
    from terminalbench.files import encode_json
    from terminalbench.report.trial import trial_text

    root = results_root(results)
    batch, row = find_trial(root, trial)
    if as_json:
        click.echo(encode_json({"batch": batch, **_fields(row)}).decode(), nl=False)
    else:
        click.echo(trial_text(root, batch, row), nl=False)
    return EXIT_OK


def _fields(row: object) -> dict:
    import msgspec

    return msgspec.structs.asdict(row)  # ty: ignore[invalid-argument-type]
