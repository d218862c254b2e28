"""`tbench list`, `show` and `label`: batches, and their trials one by one."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from terminalbench.cli.completion import batch_names, trial_words
from terminalbench.cli.options import PATH, json_option, labels_of, results_option
from terminalbench.cli.output import print_json, text_width, working
from terminalbench.errors import UserError
from terminalbench.text.foreign import cut, printable, printable_json, short
from terminalbench.text.names import typed
from terminalbench.text.numbers import cost, dollars, moment, plural
from terminalbench.text.outcomes import RUNNING
from terminalbench.text.table import columns, fitted, wrapped

if TYPE_CHECKING:
    from terminalbench.analytics.labels import Label


_LEAST_NAME = 8
"""How much of a batch's name is worth its column; with less room it is a line of its own."""


@click.command("list")
@click.argument("target", type=PATH, required=False, metavar="[EXPERIMENT.toml|BATCH]", shell_complete=batch_names)
@results_option
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="NAME=VALUE",
    callback=labels_of,
    help="Only batches with this label; repeatable, and then batches must have all of them.",
)
@json_option
@working
def list_command(target: Path | None, results: Path | None, labels: dict[str, str], as_json: bool) -> None:
    """List the batches of a results folder, newest first, or the trials of one batch."""
    if target is not None:
        if labels:
            raise click.UsageError("--label filters the list of batches, so it cannot be combined with a batch")
        _list_trials(target, results, as_json=as_json)
        return
    import json

    from terminalbench.index.scan import scan_all
    from terminalbench.lab.select import no_batch_hint, results_root
    from terminalbench.live.status import batches_now

    root = results_root(results)
    scan_all(root)
    batches = batches_now(root, labels)
    if as_json:
        shown = [{**batch, "labels": json.loads(batch["labels"] or "{}")} for batch in batches]
        print_json(shown)
        return
    if not batches:
        hint = no_batch_hint(root)
        click.echo(("no batches with these labels" if labels else "no batches yet") + (f" ({hint})" if hint else ""))
        return
    rows = [["batch", "created", "trials", "passed", "failed", "not measured", "cost", "name"]]
    for batch in batches:
        trials = f"{batch['trials']}/{batch['planned'] if batch['planned'] is not None else '?'}"
        missing = str(batch["not_measured"]) + (f", {batch['running']} running" if batch["running"] else "")
        spent = cost(batch["cost_usd"], batch["cost_unknown"], no_model=batch["no_model"])
        spent += " (simulated)" if batch["simulated"] and not batch["no_model"] else ""
        spent += ", with an oracle" if batch["oracle"] else ""
        spent += f", over budget by {dollars(batch['over_usd'])}" if batch["over_usd"] else ""
        counts = [trials, str(batch["passed"]), str(batch["failed"]), missing]
        rows.append([batch["batch"], moment(batch["created_at"]), *counts, spent, batch["name"] or ""])
    room = text_width() - max(map(len, columns([row[:-1] for row in rows], left=(0, 1, 6)).splitlines())) - 2
    if room < _LEAST_NAME:
        table = fitted([[row[0], *row[2:-1], f"{row[1]}, {row[-1]}"] for row in rows], (0, 5), text_width())
    else:
        table = columns([[*row[:-1], cut(row[-1], room)] for row in rows], left=(0, 1, 6, 7))
    click.echo(table)
    if any(batch["batch"] == "." for batch in batches):
        click.echo(_jobs(root))


def _jobs(root: Path) -> str:
    """The profiles of Harbor jobs that are not ours, and what tells those of one name apart."""
    from terminalbench.index.places import ForeignJobs
    from terminalbench.index.results import open_view
    from terminalbench.index.totals import profile_totals

    view = open_view(ForeignJobs(root))
    rows = [
        [f"  {short(one.profile, 40)}", plural(one.planned, "trial"), f"{one.passed} passed", f"{one.failed} failed"]
        for one in profile_totals(view)
    ]
    notes = wrapped((f"  {printable(note)}" for note in view.notes), 80)
    return "\n".join(["", "Harbor jobs, by profile", columns(rows, left=(0,)), *notes])


def _list_trials(name: Path, results: Path | None, *, as_json: bool) -> None:
    """The trials of one batch."""
    from terminalbench.index.results import trial_records
    from terminalbench.lab.trial import trials_now
    from terminalbench.report.text import state, trials_text

    view = trials_now(name, results)
    if as_json:
        states = [state(cell, live=view.live) for cell in view.cells]
        rows = trial_records(view)
        print_json([row | {"state": states[place] if place < len(states) else None} for place, row in enumerate(rows)])
        return
    click.echo(trials_text(view, text_width()), nl=False)
    click.echo(f"\nto see one trial: tbench show {typed(name)} PROFILE TRIAL")


@click.command("show")
@click.argument("trial", nargs=-1, required=True, metavar="TRIAL|BATCH PROFILE TASK[#N]", shell_complete=trial_words)
@click.option("--steps", metavar="A-B", help="Only these steps, in more detail.")
@click.option("--full", is_flag=True, help="Show everything in full length.")
@results_option
@json_option
@working
def show_command(trial: tuple[str, ...], steps: str | None, full: bool, results: Path | None, as_json: bool) -> None:
    """Show one trial: how it ended and why, what it used, what reached the agent, its steps, its verifier's words.

    TRIAL is its name, or the beginning of it, as in "git-lost-commit__ubopkpt", or its folder. Or name it by
    batch, profile and task: tbench show demo/0 weak csv-clean#2, the second attempt; tbench list demo/0 lists
    them.
    """
    import msgspec

    from terminalbench.experiments.envfile import secrets_of
    from terminalbench.index.places import plan_or_none
    from terminalbench.json_files import encode_json
    from terminalbench.lab.trial import find_attempt, find_trial
    from terminalbench.report.trial import ShownSteps, trial_text

    only = _range(steps)
    if len(trial) not in (1, 3):
        raise click.UsageError("name one trial, or BATCH PROFILE TASK[#N], as in: tbench show demo/0 weak csv-clean#2")
    found = find_trial(trial[0], results) if len(trial) == 1 else find_attempt(*trial, results=results)
    plan = plan_or_none(found.batch)
    secrets = secrets_of(plan)
    base = plan.base_of(found.row.dataset, found.row.task) if plan is not None else None
    if as_json:
        row = {"batch": found.batch_key, **msgspec.structs.asdict(found.row)}
        row |= {"state": RUNNING} if found.running else {}
        row |= {"base": base} if base is not None else {}
        text = encode_json(row).decode()
    else:
        name = found.batch_key if found.batch_key != "." else f"{found.batch.folder.name} (Harbor jobs)"
        if plan is not None and plan.imported is not None:
            name += f" (imported: {plan.imported.format})"
        oracle = plan is not None and found.row.profile in plan.oracles()
        shown = ShownSteps(only, full, secrets, found.later, oracle, text_width(), found.running, base)
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
        raise UserError(f'"{steps}" is not a range of steps', where="--steps", hint="write it as 3-7 or 12")
    return ends


@click.command("label")
@click.argument("trial", required=False)
@click.argument("name", required=False)
@click.argument("value", required=False)
@click.option("--author", metavar="A", help="Author of the label.")
@click.option("--reason", metavar="TEXT", help="Why.")
@click.option("--remove", is_flag=True, help="Withdraw the label; its line stays in the file.")
@click.option("--list", "only_list", is_flag=True, help="List the labels in force, and how often the judge agrees.")
@results_option
@json_option
def label_command(
    trial: str | None,
    name: str | None,
    value: str | None,
    only_list: bool,
    results: Path | None,
    as_json: bool,
    **said: Any,
) -> None:
    """Label a trial by hand: your label takes precedence over the judge's, and both are kept.

    TRIAL is a trial's name or the beginning of it, NAME what is labelled ("root_cause", "strategy", any finding), VALUE
    what it is. Lines are appended to analytics/labels.jsonl of the batch with author and reason.
    """
    from terminalbench.lab.select import results_root
    from terminalbench.lab.trial import label_trial

    root = results_root(results)
    if only_list:
        if name is not None:
            raise click.UsageError("--list can be combined with one trial only")
        _list(root, trial, as_json)
        return
    if trial is None or name is None or (value is None) != said["remove"]:
        raise click.UsageError("give TRIAL NAME VALUE, or TRIAL NAME --remove, or --list")
    if not said["author"] or not said["reason"]:
        raise click.UsageError("a label needs --author and --reason")
    label = label_trial(root, trial, name, value, author=said["author"], reason=said["reason"])
    click.echo(_line(label) if not label.removed else f"{label.trial}  {label.name}: the label was withdrawn")


def _list(root: Path, trial: str | None, as_json: bool) -> None:
    from terminalbench.analytics.labels import unfit_lines
    from terminalbench.lab.trial import batch_labels

    found = batch_labels(root, trial)
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
