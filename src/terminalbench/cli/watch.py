"""`tbench watch`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from terminalbench.cli.output import print_json
from terminalbench.cli.run import show_end
from terminalbench.cli.select import BatchChoice, on_batch
from terminalbench.errors import EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK, TbenchError
from terminalbench.text.foreign import printable, printable_json
from terminalbench.text.paths import from_here

if TYPE_CHECKING:
    from terminalbench.live.feed import Feed
    from terminalbench.watch.terminal import ViewEnd


@click.command("watch")
@click.option("--json", "as_json", is_flag=True, help="Print every event as one line of JSON, then the summary.")
@on_batch
def command(where: BatchChoice, as_json: bool) -> int:
    """Watch a batch or a night live, from any terminal: leave and come back at any time, without any effect on
    the run.

    Without a target: the running batch (of this project first, the latest one first), else the
    newest of the results folder. Not on a terminal: one plain line for each finished trial. Exit code 0: you
    left, or every planned trial was measured; 3: some were not.
    """
    from terminalbench.cli.select import batch_to_watch
    from terminalbench.live.feed import Feed
    from terminalbench.watch.terminal import ViewEnd, usable

    if (night := _night_at(where)) is not None:
        return _watch_night(night, as_json=as_json)
    feed = Feed(batch_to_watch(where))
    if not as_json and usable():
        from terminalbench.index.store import index_file
        from terminalbench.watch.attached import show
        from terminalbench.watch.view import BatchPage

        index_file(feed.root)  # what there is to say of it is said before the screen is taken
        end = show(BatchPage(feed))
        if end is not ViewEnd.OVER:
            return _left(end, feed.place)
    else:
        _stream(feed, as_json=as_json)
    return _tell_end(feed, as_json=as_json)


def _night_at(where: BatchChoice) -> Path | None:
    """The folder of a night, if that is what is named: the folder, or its state.json."""
    if where.name is None or where.number is not None:
        return None
    folder = where.name.parent if where.name.name == "state.json" else where.name
    return folder if all((folder / name).is_file() for name in ("config.json", "state.json")) else None


def _watch_night(folder: Path, *, as_json: bool) -> int:
    """Follow a night: on a terminal its view, else a line for each event. 0: left, or all was measured; 3: not all."""
    import msgspec

    from terminalbench.cli.output import end_with_the_reader
    from terminalbench.overnight.folder import NightFolder
    from terminalbench.overnight.night import IterationStatus, NightEvent
    from terminalbench.watch.attached import POLL_SEC, show
    from terminalbench.watch.night import NightFeed, NightPage, event_line, total_line
    from terminalbench.watch.terminal import ViewEnd, usable

    feed = NightFeed(NightFolder(folder))
    if not as_json and usable():
        end = show(NightPage(feed))
        if end is not ViewEnd.OVER:
            return _left(end, from_here(folder))
    else:

        def told(event: NightEvent) -> None:
            click.echo(printable_json(msgspec.json.encode(event).decode()) if as_json else event_line(event))

        end_with_the_reader()
        feed.each = told
        feed.poll()
        while not feed.over:
            time.sleep(POLL_SEC)
            feed.poll()
    if not as_json:
        click.echo(total_line(feed))
    return EXIT_OK if all(work.status is IterationStatus.DONE for work in feed.state.work) else EXIT_INCOMPLETE


def _left(end: "ViewEnd", place: object) -> int:
    """Say, unless the view was terminated, that what was watched goes on; the exit code of one who has left."""
    from terminalbench.watch.terminal import ViewEnd

    if end is ViewEnd.TERMINATED:
        return end
    click.echo(f"stopped watching {place}, which keeps running (tbench watch shows it again)", err=True)
    return EXIT_INTERRUPTED if end is ViewEnd.INTERRUPTED else EXIT_OK


def _stream(feed: "Feed", *, as_json: bool) -> None:

    from terminalbench.cli.output import end_with_the_reader
    from terminalbench.watch.attached import POLL_SEC
    from terminalbench.watch.follow import EventPrinter

    end_with_the_reader()
    stream = EventPrinter(feed, as_json=as_json)
    stream.follow()
    while not feed.over:
        time.sleep(POLL_SEC)
        stream.follow()


def _tell_end(feed: "Feed", *, as_json: bool) -> int:
    """Return what the batch came to: its summary, or what is known of one that has no plan or no usable index."""
    from terminalbench.index.queries import view_batch
    from terminalbench.index.scan import scan_batch
    from terminalbench.lab.run import FinishedRun

    for text in (feed.plan_problem, feed.note, feed.cut_off):
        if text:
            click.echo(printable(text), err=True)
    if feed.state.plan is None:
        return _tell_state(feed, as_json=as_json)
    try:
        scan_batch(feed.batch)
        ended = FinishedRun(feed.batch, view_batch(feed.batch))
    except (TbenchError, OSError) as error:
        click.echo(printable(f"the index cannot be read, so this shows events only: {error}"), err=True)
        return _tell_state(feed, as_json=as_json)
    show_end(ended, as_json=as_json, watched=True)
    return EXIT_OK if ended.complete else EXIT_INCOMPLETE


def _tell_state(feed: "Feed", *, as_json: bool) -> int:
    import shutil

    from terminalbench.watch.tables import profile_lines

    profiles = list(feed.state.profiles.values())
    total = feed.state.total
    if as_json:
        counts = {profile.key: dict(profile.outcomes) for profile in profiles}
        print_json({"kind": "summary", "outcomes": counts}, in_line=True)
    else:
        for line in profile_lines(profiles, shutil.get_terminal_size((160, 40)).columns):
            click.echo(line.plain.rstrip())
    if feed.plan_problem or feed.cut_off:
        return EXIT_INCOMPLETE
    whole = total.measured == total.planned if total.planned is not None else total.measured == total.ended
    return EXIT_OK if whole and total.measured else EXIT_INCOMPLETE
