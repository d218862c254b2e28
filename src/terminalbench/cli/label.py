"""`tbench label`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from terminalbench.cli.options import json_option, results_option
from terminalbench.cli.output import print_json

if TYPE_CHECKING:
    from terminalbench.analytics.labels import Label


@click.command("label")
@click.argument("trial", required=False)
@click.argument("name", required=False)
@click.argument("value", required=False)
@click.option("--author", metavar="A", help="Who says so.")
@click.option("--reason", metavar="TEXT", help="Why.")
@click.option("--remove", is_flag=True, help="Take the label back; the line stays in the file.")
@click.option("--list", "only_list", is_flag=True, help="List what holds, and how far the judge agrees.")
@results_option
@json_option
def command(
    trial: str | None,
    name: str | None,
    value: str | None,
    only_list: bool,
    results: Path | None,
    as_json: bool,
    **said: Any,
) -> None:
    """Say yourself what a trial shows: it goes before the judge's word, and both are kept.

    TRIAL is a trial's name or the beginning of it, NAME what is labelled ("root_cause", "strategy", any finding), VALUE
    what it is. Lines are appended to analytics/labels.jsonl of the batch with author and reason.
    """
    from terminalbench.lab.label import add
    from terminalbench.lab.select import results_root

    root = results_root(results)
    if only_list:
        if name is not None:
            raise click.UsageError("--list takes a trial or nothing")
        _list(root, trial, as_json)
        return
    if trial is None or name is None or (value is None) != said["remove"]:
        raise click.UsageError("give TRIAL NAME VALUE, or TRIAL NAME --remove, or --list")
    if not said["author"] or not said["reason"]:
        raise click.UsageError("a label needs --author and --reason")
    label = add(root, trial, name, value, author=said["author"], reason=said["reason"])
    click.echo(_line(label) if not label.removed else f"{label.trial}  {label.name}: the label was taken back")


def _list(root: Path, trial: str | None, as_json: bool) -> None:
    from terminalbench.analytics.labels import unfit_lines
    from terminalbench.lab.label import listed

    found = listed(root, trial)
    if as_json:
        labels = [{"batch": held.batch, "label": label} for held in found for label in held.labels]
        agreed = {held.batch: held.agreement for held in found if held.agreement}
        print_json({"labels": labels, "agreement": agreed})
        return
    lines: list[str] = []
    for held in found:
        lines += [f"{held.batch}  {_line(label)}" for label in held.labels]
        if held.unreadable:
            lines.append(f"{held.batch}  {unfit_lines(held.unreadable)}")
        lines += [f"{held.batch}  agreement with the judge: {entry.sentence()}" for entry in held.agreement]
    click.echo("\n".join(lines) or "no labels yet")


def _line(label: "Label") -> str:
    value = str(label.value).lower() if isinstance(label.value, bool) else label.value
    return f"{label.trial}  {label.name} = {value}  ({label.author}, {label.time[:10]}: {label.reason})"
