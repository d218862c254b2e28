"""`tbench diff`."""

from pathlib import Path

import click

from terminalbench.cli.options import experiment_argument, json_option, root_option
from terminalbench.cli.output import print_json


@click.command("diff")
@experiment_argument
@click.argument("a")
@click.argument("b")
@json_option
@root_option
def command(experiment: Path, a: str, b: str, as_json: bool, root: Path | None) -> None:
    """Show what differs between profiles A and B, prompt and configuration text included.

    KEY@N is a profile as batch N was planned with it: `tbench diff FILE mine@0 mine` shows which files changed since.
    """
    from terminalbench.experiments.config import load
    from terminalbench.experiments.profile_changes import differences
    from terminalbench.lab.plan import treatment

    loaded = load(experiment, root)
    old, new = (treatment(loaded, name) for name in (a, b))
    found = differences(old.content, new.content)
    if as_json:
        aspects = [{"aspect": d.aspect, a: d.old, b: d.new} for d in found]
        document = {"a": {"key": a, "id": old.id}, "b": {"key": b, "id": new.id}, "differences": aspects}
        print_json(document)
        return
    click.echo(f"--- {a} {old.id}\n+++ {b} {new.id}")
    if not found:
        click.echo("the same treatment")
    for difference in found:
        click.echo(f"\n{difference.aspect}")
        for line in difference.lines():
            click.echo(f"  {line}")
