"""`tbench watch`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from terminalbench.cli.options import results_option, root_option
from terminalbench.errors import EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK, TbenchError, UserError

if TYPE_CHECKING:
    from terminalbench.experiments.batch import Batch
    from terminalbench.live.feed import Feed


@click.command("watch")
@click.argument("target", type=click.Path(path_type=Path), required=False, metavar="[EXPERIMENT.toml|BATCH]")
@click.option("--batch", type=click.IntRange(min=0), help="Which batch of the experiment. Default: the latest.")
@click.option("--json", "as_json", is_flag=True, help="Print every event as JSON, one a line, then the summary.")
@results_option
@root_option
def command(target: Path | None, batch: int | None, as_json: bool, results: Path | None, root: Path | None) -> int:
    """Watch a batch live, from any terminal: leave and come back at will, the run does not notice.

    Without a target: the batch that runs (this project's before another's, the one started last), else the newest of
    the results folder. Not on a terminal: one plain line for each finished trial. Exit code 0: left, or every planned
    trial was measured; 3: some were not.
    """
    from terminalbench.live.feed import Feed
    from terminalbench.watch.terminal import ViewEnd, usable

    feed = Feed(_find(target, batch, results, root))
    if not as_json and usable():
        from terminalbench.index.store import index_file
        from terminalbench.watch.app import show

        index_file(feed.root)  # what there is to say of it is said before the screen is taken
        end = show(feed)
        if end is ViewEnd.TERMINATED:
            return end
        if end is not ViewEnd.OVER:
            click.echo(f"left {feed.place}; it goes on. tbench watch comes back", err=True)
            return EXIT_INTERRUPTED if end is ViewEnd.INTERRUPTED else EXIT_OK
    else:
        _stream(feed, as_json=as_json)
    return _tell_end(feed, as_json=as_json)


def _find(target: Path | None, number: int | None, results: Path | None, root: Path | None) -> "Batch":
    from terminalbench.lab.select import find_target

    if target is None:
        if number is not None:
            raise UserError("--batch goes with an experiment file", hint="tbench watch EXPERIMENT.toml --batch N")
        running = _running(results)
        if running is not None:
            return running
    elif target.is_dir() and not (target / "plan.json").is_file():
        return _meant(target)
    return find_target(target, number, results, root).batch


def _meant(folder: Path) -> "Batch":
    """The batch that a folder without a plan stands for: one it lies in, the only one in it, or jobs of Harbor."""
    from terminalbench.experiments.batch import Batch
    from terminalbench.index.scan import ForeignJobs, find_batches

    whole = folder.resolve()
    for place in (whole, *whole.parents[:2]):
        if place.name == "runs" and (place.parent / "plan.json").is_file():
            return Batch(place.parent)
    found = list(find_batches(whole))
    if (folder / "config.json").is_file():  # a job of Harbor: it is shown with those beside it
        found = [batch for batch in found if isinstance(batch, ForeignJobs)]
    if len(found) == 1:
        return found[0]
    inside = [plan.parent for pattern in ("*/plan.json", "*/*/plan.json") for plan in folder.glob(pattern)]
    if not inside:
        raise UserError("is neither a batch nor a folder of Harbor jobs", where=str(folder))
    one = max(inside, key=lambda place: (place / "plan.json").stat().st_mtime)
    raise UserError("is no batch, it holds batches", where=str(folder), hint=f"name one of them, as {one}")


def _running(results: Path | None) -> "Batch | None":
    """The batch that runs, said on the error stream: this project's before any other, the one started last."""
    from terminalbench.lab.select import live_batches, of_this_project

    found = live_batches(results)
    if not found:
        return None
    elsewhere = "" if results is not None or of_this_project(found[0]) else ", which is not of this project"
    click.echo(f"watching {found[0].folder}{elsewhere}", err=True)
    if found[1:]:
        click.echo(f"also running: {', '.join(str(other.folder) for other in found[1:])}", err=True)
    return found[0]


def _stream(feed: "Feed", *, as_json: bool) -> None:
    import time

    from terminalbench.cli.output import end_with_the_reader
    from terminalbench.watch.follow import POLL_SEC, Stream

    end_with_the_reader()
    stream = Stream(feed, as_json=as_json)
    stream.follow()
    while not feed.over:
        time.sleep(POLL_SEC)
        stream.follow()


def _tell_end(feed: "Feed", *, as_json: bool) -> int:
    """What the batch came to: its summary, or what is known of one that has no plan or no usable index."""
    import msgspec

    from terminalbench.cli.running import as_document, going_on
    from terminalbench.index.queries import view_batch
    from terminalbench.index.scan import scan_batch
    from terminalbench.report.text import summary
    from terminalbench.report.trial import printable

    for text in (feed.plan_problem, feed.note, feed.cut_off):
        if text:
            click.echo(printable(text), err=True)
    if feed.state.plan is None:
        return _tell_state(feed, as_json=as_json)
    try:
        scan_batch(feed.batch)
        view = view_batch(feed.batch)
    except (TbenchError, OSError) as error:
        click.echo(f"the index cannot be read, so this is from the events alone: {error}", err=True)
        return _tell_state(feed, as_json=as_json)
    if as_json:
        document = {"kind": "summary", **as_document(view, interrupted=False)}
        click.echo(msgspec.json.encode(document).decode())
    else:
        click.echo(summary(view), nl=False)
        place = os.path.relpath(feed.batch.folder)
        click.echo(f"\nbatch {feed.place}: {place}")
        for line in going_on(view, place, interrupted=False):
            click.echo(line)
    return EXIT_OK if all(cell.measured for cell in view.cells) else EXIT_INCOMPLETE


def _tell_state(feed: "Feed", *, as_json: bool) -> int:
    import shutil

    import msgspec

    from terminalbench.watch.tables import profile_lines

    profiles = list(feed.state.profiles.values())
    total = feed.state.total
    if as_json:
        counts = {profile.key: dict(profile.outcomes) for profile in profiles}
        click.echo(msgspec.json.encode({"kind": "summary", "outcomes": counts}).decode())
    else:
        for line in profile_lines(profiles, shutil.get_terminal_size((160, 40)).columns):
            click.echo(line.plain.rstrip())
    if feed.plan_problem or feed.cut_off:
        return EXIT_INCOMPLETE
    whole = total.measured == total.planned if total.planned is not None else total.measured == total.ended
    return EXIT_OK if whole and total.measured else EXIT_INCOMPLETE
