"""`tbench prune`, `mirror` and `index`: the care of a results folder."""

import re
from datetime import UTC, datetime
from pathlib import Path

import click

from terminalbench.cli.completion import batch_names
from terminalbench.cli.options import PATH, ListCommand, experiment_argument, json_option, results_option, root_option
from terminalbench.cli.output import print_json, working
from terminalbench.errors import EXIT_FAILURE, EXIT_INCOMPLETE, EXIT_OK, TbenchError, UserError
from terminalbench.text.foreign import printable
from terminalbench.text.numbers import moment, plural, size
from terminalbench.text.progress import tell
from terminalbench.text.table import columns


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
    from terminalbench.cli.select import noted
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
