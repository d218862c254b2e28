"""`tbench import`, `export`, `query`, `prune`, `mirror` and `index`: what is done with a results folder as a whole."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from terminalbench.cli.completion import batch_names
from terminalbench.cli.options import (
    PATH,
    BatchChoice,
    ListCommand,
    experiment_argument,
    json_option,
    on_batch,
    reading_options,
    results_option,
    root_option,
)
from terminalbench.cli.output import print_json, working
from terminalbench.errors import EXIT_FAILURE, EXIT_INCOMPLETE, EXIT_OK, TbenchError, UserError
from terminalbench.files import write_bytes
from terminalbench.lab.select import results_root
from terminalbench.text.foreign import flat, printable, printable_json
from terminalbench.text.names import from_here, typed
from terminalbench.text.numbers import moment, plural, size
from terminalbench.text.screen import tell
from terminalbench.text.table import columns

if TYPE_CHECKING:
    from terminalbench.formats.row import ReadOptions


@click.command("import")
@click.argument("source", type=PATH, metavar="FILE|FOLDER")
@click.option("--name", metavar="NAME", help="Name of the batch in the results folder. Default: the name of the file.")
@click.option("--profile", metavar="NAME", help="Profile of all rows. Default: the profile that each row names.")
@click.option("--copy", is_flag=True, help="Copy the source files into the batch. Default: only record their paths.")
@click.option("--update", is_flag=True, help="If the source has changed, replace the earlier import.")
@reading_options
@results_option
@json_option
@working
def import_command(
    source: Path,
    name: str | None,
    copy: bool,
    update: bool,
    reading: "ReadOptions",
    results: Path | None,
    as_json: bool,
) -> None:
    """Turn results of another tool into a batch, to list, compare, report, view and query like any other.

    Recognised by content: tables (CSV, JSONL, Parquet), Terminal-Bench 1, Harbor jobs, SWE-bench and SWE-Bench Pro,
    Inspect logs, promptfoo, JUnit XML. docs/import.md has an example of each.
    """
    from terminalbench.lab.imports import ImportRequest, ImportState, import_results

    made = import_results(source, results, ImportRequest(reading=reading, name=name, copy=copy, update=update))
    record = made.record
    if as_json:
        told = {"batch": made.batch.folder, "state": made.state, "difference": made.difference, "imported": record}
        print_json(told)
        return
    place = from_here(made.batch.folder)
    profiles, tasks = len(made.plan.jobs), len({task.ref for job in made.plan.jobs for task in job.tasks})
    held = f"{plural(record.rows, 'trial')} of {plural(profiles, 'profile')} on {plural(tasks, 'task')}"
    if made.state is ImportState.SAME:
        click.echo(f"{printable(place)}: imported before, on {record.at[:10]}; nothing changed")
    else:
        changed = f", {made.difference}" if made.difference else ""
        click.echo(f"{printable(place)}: {record.format}, {held}{changed}")
    for count, cause in ((count, cause) for cause, count in record.rejected.items()):
        click.echo(f"  not used: {count}, {printable(cause)}")
    for note in record.notes:
        click.echo(f"  {printable(note)}")
    click.echo(f"tbench compare {typed(Path(place))}")


FORMATS = ("csv", "json", "parquet", "junit")
_ENDINGS: dict[str, Any] = {".csv": "csv", ".json": "json", ".parquet": "parquet", ".xml": "junit"}


@click.command("export")
@click.option("--format", "form", type=click.Choice(FORMATS), help="Format. Default: the extension of FILE, else csv.")
@click.option("--table", type=click.Choice(("trials", "findings")), default="trials", help="What to write.")
@click.option("--all", "everything", is_flag=True, help="Write every batch of the results folder.")
@click.option("--output", "-o", type=PATH, metavar="FILE", help="Default: standard output.")
@on_batch
@working
def export_command(where: BatchChoice, form: Any, table: str, everything: bool, output: Path | None) -> None:
    """Write the trials of a batch for other programs: one row for each planned trial, and one for each
    superseded try.

    In JUnit XML a profile is a suite; what was not measured is an error or skipped, never a failure. Parquet needs the
    extra "dataframes".
    """
    from terminalbench.cli.options import one_batch
    from terminalbench.index.places import ForeignJobs
    from terminalbench.lab.select import results_root
    from terminalbench.live.status import open_results
    from terminalbench.report.export import encode_table, export_trials

    ending = output.suffix.lower() if output is not None else ""
    if form is None and ending and ending not in _ENDINGS:
        raise UserError(f"{output}: the extension is none of {', '.join(_ENDINGS)}", hint="name the --format")
    form = form or _ENDINGS.get(ending, "csv")
    if _ENDINGS.get(ending, form) != form:
        raise UserError(
            f"--format {form} does not match the extension of {output}", hint="name another file, or leave out --format"
        )
    if output is not None and not output.resolve().parent.is_dir():
        raise UserError("there is no such folder", where=str(output.parent), hint="create it first")
    if form == "parquet" and output is None:
        raise UserError("parquet is binary", hint="name a file with -o")
    if form == "junit" and table != "trials":
        raise UserError("JUnit XML holds trials, not findings", hint="--format csv, json or parquet")
    key: str | None = None
    if everything:
        where.refuse_name()
        folder = results_root(where.results)
    else:
        found = one_batch(where, foreign=True).batch
        folder = found.folder / found.only[0] if isinstance(found, ForeignJobs) and found.only else found.results_root
        key = found.folder.relative_to(found.results_root).as_posix()
    opened = open_results(folder)
    data = export_trials(opened, [key], form) if table == "trials" else encode_table(opened.findings(key), form)
    if output is None:
        click.echo(printable_json(data.decode()) if form == "json" else data.decode(), nl=False)
    else:
        write_bytes(output.resolve(), data)
        click.echo(f"{output}", err=True)


_CELL = 80


@click.command("query")
@click.argument("sql")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=1000,
    help="Print at most this many rows; 0 prints all.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=30.0,
    metavar="SEC",
    help="Stop the query after this many seconds; 0 means never.",
)
@results_option
@json_option
@working
def query_command(sql: str, as_csv: bool, limit: int, timeout: float, results: Path | None, as_json: bool) -> None:
    """Query the index of all batches in SQL. Queries can only read.

    Tables: batches, trials, findings (see docs/results.md). For example
    "SELECT profile, avg(cost_usd) FROM trials GROUP BY profile".
    """
    from terminalbench.index.scan import scan_all
    from terminalbench.index.sql import ask
    from terminalbench.report.export import csv_bytes

    if as_csv and as_json:
        raise click.UsageError("--csv and --json cannot be combined")
    root = results_root(results)
    scan_all(root)
    answer = ask(root, sql, limit or None, timeout or None)
    if as_json:
        records = [{name: _plain(value) for name, value in record.items()} for record in answer.records()]
        print_json(records)
    elif as_csv:
        click.echo(csv_bytes(answer.columns, answer.rows).decode(), nl=False)
    else:
        rows = [[_short(value) for value in row] for row in answer.rows]
        numbers = [i for i in range(len(answer.columns)) if any(isinstance(r[i], int | float) for r in answer.rows)]
        left = [i for i in range(len(answer.columns)) if i not in numbers]
        click.echo(columns([[printable(name) for name in answer.columns], *rows], left=left))
    if answer.more:
        click.echo(f"only the first {plural(limit, 'row')} shown; --limit sets how many", err=True)


def _plain(value: object) -> object:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _short(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else flat(str(_plain(value)), _CELL)


@click.command("prune")
@click.argument("batches", nargs=-1, type=PATH, metavar="[BATCH]...", shell_complete=batch_names)
@click.option(
    "--days",
    type=click.FloatRange(min=0),
    default=30.0,
    help="Age in days after which an unchanged batch counts as old.",
)
@click.option(
    "--keep",
    type=click.IntRange(min=0),
    default=1,
    help="How many of the newest batches of each experiment to keep.",
)
@click.option("--yes", is_flag=True, help="Remove them. Without --yes, only list what would be removed.")
@results_option
@json_option
@working
def prune_command(
    batches: tuple[Path, ...], days: float, keep: int, yes: bool, results: Path | None, as_json: bool
) -> int:
    """Remove old batches, or those that you name, from a results folder; without --yes, only list them.

    A batch is kept while it runs, and while a comparison of another batch, an episode, a lesson, a training or
    a night refers to it.
    """
    from terminalbench.lab.prune import RemovedBatches, find_old, remove
    from terminalbench.lab.select import results_root

    root = results_root(results)
    found = find_old(root, batches, days=days, keep=keep, now=datetime.now(UTC))
    going = [one for one in found if one.stays is None]
    removed = remove(root, found) if yes else RemovedBatches((), ())
    if as_json:
        print_json({"found": found, "removed": removed.keys, "problems": removed.problems})
    else:
        rows = [
            [one.key, moment(one.written), size(one.bytes) if one.stays is None else "stays", one.stays or ""]
            for one in found
        ]
        if rows:
            click.echo(columns([["batch", "last written", "size", ""], *rows], left=(0, 1, 3)))
        freed = size(sum(one.bytes or 0 for one in going))
        count = plural(len(removed.keys) if yes else len(going), "batch", "batches")
        if yes:
            click.echo(f"removed {count}")
        elif going:
            click.echo(f"would remove {count}, {freed}; add --yes to remove them")
        else:
            click.echo("nothing to remove")
    for problem in removed.problems:
        click.echo(f"error: {problem}", err=True)
    return EXIT_FAILURE if removed.problems else EXIT_OK


@click.command("mirror", cls=ListCommand)
@experiment_argument
@click.option("--batch", type=click.IntRange(min=0), help="Number of the batch. Default: the latest with data.")
@click.option(
    "--targets",
    multiple=True,
    metavar="NAME...",
    help="Session folders to copy. Default: artifacts.targets of the experiment file.",
)
@click.option("--dest-dirname", default="artifacts", help="Folder of the batch that they are copied to.")
@root_option
def mirror_command(
    experiment: Path, batch: int | None, targets: tuple[str, ...], dest_dirname: str, root: Path | None
) -> int:
    """Copy agent/sessions/<target>/ of every trial to <batch>/artifacts/<target>/<trial>/.

    A run does this by itself as trials end; this repeats it, copying only what changed.
    """
    from terminalbench.cli.options import noted
    from terminalbench.experiments.config import load
    from terminalbench.experiments.tables import SLUG, SLUG_DOC
    from terminalbench.lab.select import SelectedBatches, find_target
    from terminalbench.runner.mirror_artifacts import mirror_batch

    loaded = load(experiment, root)
    wanted = list(targets) or loaded.artifacts.targets
    for name in (*wanted, dest_dirname):
        if not re.fullmatch(SLUG, name):
            raise UserError(f'"{name}" must be {SLUG_DOC}')
    if dest_dirname in ("runs", "superseded", "workers", "analytics"):
        what = f"--dest-dirname: every batch already uses the folder {dest_dirname} for itself"
        raise UserError(what, hint="choose another name")
    if not wanted:
        hint = "set targets in [artifacts], or give --targets"
        raise UserError("names no artifact targets to copy", where=str(experiment), hint=hint)
    folder = noted(SelectedBatches((find_target(loaded, batch, with_data=True),))).batches[0]
    done = mirror_batch(folder.runs, wanted, folder.folder / dest_dirname)
    click.echo(f"{done.copied} copied, {done.unchanged} unchanged, {len(done.failed)} failed")
    for failure in done.failed:
        click.echo(f"failed: {failure}", err=True)
    return EXIT_INCOMPLETE if done.failed else EXIT_OK


@click.command("index")
@results_option
@click.option("--rebuild", is_flag=True, help="Rebuild the index: forget everything and read all trials again.")
@json_option
@working
def index_command(results: Path | None, rebuild: bool, as_json: bool) -> int:
    """Bring the index up to date with what is on disk, and write each batch's runs/index.json.

    The index is a cache: it can be deleted at any time. Exit code 3: some files could not be read.
    """
    from terminalbench.index.places import ForeignJobs, find_batches
    from terminalbench.index.queries import view_batch
    from terminalbench.index.results import export_index
    from terminalbench.index.scan import scan_all
    from terminalbench.lab.select import results_root

    root = results_root(results)
    report = scan_all(root, rebuild=rebuild, thorough=True, in_root=True)
    batches = list(find_batches(root))
    for place, batch in enumerate(batches):
        tell("writing runs/index.json", place, len(batches))
        if isinstance(batch, ForeignJobs):
            continue
        try:
            export_index(batch, view_batch(batch, root))
        except (TbenchError, OSError) as error:
            click.echo(f"not exported: {error}", err=True)
    tell("writing runs/index.json", len(batches), len(batches))
    if as_json:
        print_json(report)
    else:
        counts = f"{report.read} read, {report.removed} gone, {len(report.unreadable)} unreadable"
        click.echo(f"{plural(report.seen, 'trial')}: {counts}")
        for problem in report.unreadable:
            click.echo(f"unreadable: {printable(problem)}", err=True)
    return EXIT_INCOMPLETE if report.unreadable else EXIT_OK
