"""`tbench label`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from terminalbench.cli.options import json_option, results_option
from terminalbench.errors import EXIT_OK, UserError
from terminalbench.lab.select import results_root

if TYPE_CHECKING:
    from terminalbench.analytics.judge.agreement import Agreement
    from terminalbench.analytics.labels import Label
    from terminalbench.experiments.batch import Batch


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
) -> int:
    """Say yourself what a trial shows: it goes before the judge's word, and both are kept.

    TRIAL is a trial's name or the beginning of it, NAME what is labelled ("root_cause", "strategy", any finding), VALUE
    what it is. Lines are appended to analytics/labels.jsonl of the batch with author and reason.
    """
    root = results_root(results)
    if only_list:
        if name is not None:
            raise click.UsageError("--list takes a trial or nothing")
        return _list(root, trial, as_json)
    if trial is None or name is None or (value is None) != said["remove"]:
        raise click.UsageError("give TRIAL NAME VALUE, or TRIAL NAME --remove, or --list")
    if not said["author"] or not said["reason"]:
        raise click.UsageError("a label needs --author and --reason")
    label = _write(root, trial, name, value, said["author"], said["reason"])
    click.echo(_line(label) if not label.removed else f"{label.trial}  {label.name}: the label was taken back")
    return EXIT_OK


def _write(root: Path, trial: str, name: str, value: str | None, author: str, reason: str) -> "Label":
    from datetime import UTC, datetime

    from terminalbench.analytics.judge.output import findings_of, refresh_findings
    from terminalbench.analytics.labels import (
        FAILURE_CLASS,
        add_label,
        make_label,
        parse_value,
        read_labels,
    )
    from terminalbench.cli.trials import find_trial
    from terminalbench.index.results import FINDINGS_FILE

    key_of_batch, row = find_trial(root, trial)
    batch = _batch(root, key_of_batch)
    analytics = batch.analytics
    key = f"{row.job}/{row.name}"
    if value is None and (key, name) not in read_labels(analytics).current():
        raise UserError(f'{row.name} has no label "{name}"', hint="tbench label --list shows what there is")
    if name == FAILURE_CLASS and value is not None and row.trial is not None and row.trial.outcome == "passed":
        raise UserError(f"{row.name} passed: it has no {FAILURE_CLASS}")
    if name == FAILURE_CLASS and value is not None and row.trial is None:
        raise UserError(f"{row.name} has no result: nobody can say why it failed")
    parsed = None if value is None else parse_value(name, value, findings_of(analytics))
    label = make_label(key, name, parsed, author, reason, datetime.now(UTC))
    add_label(analytics, label)
    if (analytics / FINDINGS_FILE).exists():
        refresh_findings(analytics, [batch])
    return label


def _list(root: Path, trial: str | None, as_json: bool) -> int:
    from terminalbench.analytics.judge.agreement import agreements
    from terminalbench.analytics.judge.output import findings_of
    from terminalbench.analytics.labels import UNFIT, read_labels
    from terminalbench.files import encode_json

    labels: list[dict[str, Any]] = []
    lines: list[str] = []
    agreed: dict[str, list[Agreement]] = {}
    for batch, key in _places(root, trial):
        found = read_labels(batch.analytics)
        name = batch.folder.relative_to(root).as_posix()
        held = [label for label in found.current().values() if key in (None, label.trial)]
        labels += [{"batch": name, "label": label} for label in held]
        lines += [f"{name}  {_line(label)}" for label in held]
        if found.unreadable:
            lines.append(f"{name}  {found.unreadable} lines of labels.jsonl do not count ({UNFIT})")
        entries = agreements(findings_of(batch.analytics), found) if key is None else []
        if entries:
            agreed[name] = entries
            lines += [f"{name}  agreement with the judge: {entry.sentence()}" for entry in entries]
    if as_json:
        click.echo(encode_json({"labels": labels, "agreement": agreed}).decode(), nl=False)
    else:
        click.echo("\n".join(lines) or "no labels yet")
    return EXIT_OK


def _places(root: Path, trial: str | None) -> "list[tuple[Batch, str | None]]":
    from terminalbench.analytics.labels import FILE
    from terminalbench.cli.trials import find_trial

    if trial is None:
        keys = [".", *(folder.relative_to(root).as_posix() for folder in sorted(root.glob("*/*")))]
        return [(batch, None) for key in keys if ((batch := _batch(root, key)).analytics / FILE).is_file()]
    batch, row = find_trial(root, trial)
    return [(_batch(root, batch), f"{row.job}/{row.name}")]


def _batch(root: Path, key: str) -> "Batch":
    """A batch by its key in the index."""
    from terminalbench.experiments.batch import Batch
    from terminalbench.index.scan import ForeignJobs

    return ForeignJobs(root) if key == "." else Batch(root / key)


def _line(label: "Label") -> str:
    value = str(label.value).lower() if isinstance(label.value, bool) else label.value
    return f"{label.trial}  {label.name} = {value}  ({label.author}, {label.time[:10]}: {label.reason})"
