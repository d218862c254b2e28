"""`tbench show`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from terminalbench.cli.line import working
from terminalbench.cli.names import trial_words
from terminalbench.cli.options import json_option, results_option
from terminalbench.cli.output import text_width
from terminalbench.errors import UserError

if TYPE_CHECKING:
    from terminalbench.index.queries import TrialRow


@click.command("show")
@click.argument("trial", nargs=-1, required=True, metavar="TRIAL|BATCH PROFILE TASK[#N]", shell_complete=trial_words)
@click.option("--steps", metavar="A-B", help="Only these steps, with more of each.")
@click.option("--full", is_flag=True, help="Everything, nothing cut.")
@results_option
@json_option
@working
def command(trial: tuple[str, ...], steps: str | None, full: bool, results: Path | None, as_json: bool) -> None:
    """Show one trial: how it ended and why, what it used, what reached the agent, its steps, its verifier's words.

    TRIAL is its name, or the beginning of it, as in "git-lost-commit__ubopkpt", or its folder. By what it was to do:
    tbench show demo/0 weak csv-clean#2, the second attempt; tbench list demo/0 lists them.
    """
    import msgspec

    from terminalbench.experiments.plan_secrets import secrets_of
    from terminalbench.index.plans import plan_or_none
    from terminalbench.json_files import encode_json
    from terminalbench.lab.trial import find_attempt, find_trial
    from terminalbench.report.trial import ShownSteps, trial_text
    from terminalbench.text.foreign import printable_json
    from terminalbench.text.outcomes import RUNNING

    only = _range(steps)
    if len(trial) not in (1, 3):
        raise click.UsageError("name one trial, or BATCH PROFILE TASK[#N], as in: tbench show demo/0 weak csv-clean#2")
    found = find_trial(trial[0], results) if len(trial) == 1 else find_attempt(*trial, results=results)
    plan = plan_or_none(found.batch)
    secrets = secrets_of(plan)

    def base_of(row: "TrialRow") -> str | None:
        return plan.base_of(row.dataset, row.task) if plan is not None else None

    if as_json:
        row = {**msgspec.structs.asdict(found.row), **({"state": RUNNING} if found.running else {})}
        base = {"base": base_of(found.row)} if plan is not None and base_of(found.row) is not None else {}
        text = encode_json({"batch": found.batch_key, **row, **base}).decode()
    else:
        name = found.batch_key if found.batch_key != "." else f"{found.batch.folder.name} (Harbor jobs)"
        if plan is not None and plan.imported is not None:
            name += f" (imported: {plan.imported.format})"
        oracle = plan is not None and found.row.profile in plan.oracles()
        shown = ShownSteps(only, full, secrets, found.later, oracle, text_width(), found.running, base_of(found.row))
        text = trial_text(found.folder, name, found.row, shown)
    text = secrets.hide(text)
    click.echo(printable_json(text) if as_json else text, nl=False)


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
