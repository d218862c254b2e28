"""`tbench show`."""

from pathlib import Path

import click

from terminalbench.cli.options import json_option, results_option
from terminalbench.cli.trials import find_trial
from terminalbench.errors import EXIT_OK, UserError
from terminalbench.lab.select import results_root


@click.command("show")
@click.argument("trial")
@click.option("--steps", metavar="A-B", help="Only these steps, with more of each.")
@click.option("--full", is_flag=True, help="Everything, nothing cut.")
@results_option
@json_option
def command(trial: str, steps: str | None, full: bool, results: Path | None, as_json: bool) -> int:
    """Show one trial: how it ended and why, what it used, what reached the agent, its steps, its verifier's words.

    TRIAL is its name, or the beginning of it, as in "git-lost-commit__ubopkpt".
    """
    from terminalbench.experiments.batch import Batch
    from terminalbench.experiments.plan_secrets import secrets_of
    from terminalbench.files import encode_json
    from terminalbench.index.queries import plan_or_none
    from terminalbench.report.steps import Shown
    from terminalbench.report.trial import trial_text

    only = _range(steps)
    root = results_root(results)
    batch, row = find_trial(root, trial)
    secrets = secrets_of(plan_or_none(Batch(root / batch)))
    shown = Shown(only, full, secrets)
    text = encode_json({"batch": batch, **_fields(row)}).decode() if as_json else trial_text(root, batch, row, shown)
    click.echo(secrets.hide(text), nl=False)
    return EXIT_OK


def _range(steps: str | None) -> tuple[int, int] | None:
    if steps is None:
        return None
    first, dash, last = steps.partition("-")
    try:
        ends = (int(first), int(last if dash else first))
    except ValueError:
        ends = (1, 0)
    if ends[0] > ends[1]:
        raise UserError(f'"{steps}" names no steps', where="--steps", hint="as in 3-7 or 12")
    return ends


def _fields(row: object) -> dict:
    import msgspec

    return msgspec.structs.asdict(row)  # ty: ignore[invalid-argument-type]
