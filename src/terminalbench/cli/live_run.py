"""`tbench status`, `watch`, `ctl` and `kill`: what runs now, and how it is steered and ended."""

import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from terminalbench.cli.options import (
    PATH,
    BatchChoice,
    batch_option,
    json_option,
    on_batch,
    results_option,
    root_option,
)
from terminalbench.cli.output import print_json
from terminalbench.cli.run import show_end
from terminalbench.errors import (
    EXIT_FAILURE,
    EXIT_INCOMPLETE,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    TbenchError,
    UserError,
)
from terminalbench.text.foreign import printable, printable_json
from terminalbench.text.names import from_here, typed
from terminalbench.text.numbers import NOTHING, cost, duration, moment
from terminalbench.text.table import columns

if TYPE_CHECKING:
    from terminalbench.live.feed import Feed
    from terminalbench.runner.kill import LiveProcesses
    from terminalbench.watch.terminal import ViewEnd


@click.command("status")
@results_option
@json_option
def status_command(results: Path | None, as_json: bool) -> None:
    """Show the running batches of this user (this project's first), their processes and their progress."""
    from terminalbench.experiments.batch import Batch
    from terminalbench.lab.select import of_this_project, results_root
    from terminalbench.live.status import running_batches
    from terminalbench.text.outcomes import word

    found = running_batches(results_root(results) if results else None)
    found.sort(key=lambda status: not of_this_project(Batch(Path(status.batch))))
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("nothing is running")
        return
    rows = [["batch", "state", "pid", "since", "trials", "outcomes", "cost", "left"]]
    for status in found:
        outcomes = ", ".join(f"{count} {word(name)}" for name, count in status.outcomes.items()) or NOTHING
        pid = str(status.runner) if status.runner is not None else "-"
        spent = cost(status.cost_usd, status.cost_unknown)
        counts = {"running": status.running, "waiting": status.to_start, "held": status.held}
        done = f"{status.ended}/{'?' if status.planned is None else status.planned}"
        trials = ", ".join([done, *(f"{count} {name}" for name, count in counts.items() if count)])
        since, left = moment(status.since), duration(status.left_sec) if status.runner is not None else NOTHING
        rows.append([from_here(status.batch), status.state, pid, since, trials, outcomes, spent, left])
    click.echo(columns(rows, left=range(8)))
    for status in found:
        for line in status.lines:
            click.echo(f"{from_here(status.batch)}: {printable(line)}")
    for folder, line in _nights([Path(status.batch) for status in found]).items():
        click.echo(f"night {from_here(folder)}: {printable(line)} (tbench watch {typed(folder)})")


def _nights(batches: list[Path]) -> dict[Path, str]:
    """The nights that running batches belong to, each in a line."""
    from terminalbench.overnight.folder import NightFolder
    from terminalbench.watch.night import NightFeed, total_line

    found = {}
    for folder in dict.fromkeys(batch.parents[2] for batch in batches):
        if all(file.is_file() for file in (NightFolder(folder).config_json, NightFolder(folder).state_json)):
            feed = NightFeed(NightFolder(folder))
            feed.poll()
            found[folder] = total_line(feed)
    return found


_ACTIONS = ("pause", "resume", "set", "requeue", "cancel")
_BY_HAND = "by hand, no reason given"
_PARALLEL = re.compile(r"parallel=(\d{1,6})")


@click.command("ctl")
@click.argument("action", type=click.Choice(_ACTIONS))
@click.argument("targets", nargs=-1, metavar="[parallel=N] [PROFILE|TRIAL]...")
@click.option("--reason", help="Reason, recorded with the change. Required, except on a terminal.")
@click.option(
    "--in",
    "target",
    type=PATH,
    metavar="EXPERIMENT.toml|BATCH",
    help="Batch to steer. Default: the running batch, of this project first.",
)
@batch_option
@click.option("--gate", type=PATH, metavar="FILE", help="Steer all batches that share this gate.")
@results_option
@root_option
def ctl_command(
    action: str,
    targets: tuple[str, ...],
    reason: str | None,
    target: Path | None,
    batch: int | None,
    gate: Path | None,
    results: Path | None,
    root: Path | None,
) -> None:
    """Steer a live run: pause and resume profiles, run fewer or more trials at once, cancel or requeue.

    \b
    tbench ctl pause haiku --reason "quota"      no new trial of the profile starts
    tbench ctl resume haiku --reason "new day"   they start again; without a name: all profiles
    tbench ctl set parallel=1 --gate results/night/gate.json   the same in every batch of a night
    tbench ctl set parallel=8 --reason "quota"   run at most 8 trials at once, in each profile or in those named
    tbench ctl requeue fix-git__a1b --reason x   end a running trial and run it again
    tbench ctl cancel sonnet --reason "wrong"    end running trials, start no others

    cancel and requeue wait until the trials have ended, and say how. A trial is cancelled twice, 30 s apart;
    when it ignores both, its Harbor process is ended and the other trials of that process run in another. With
    --gate the order goes to every running batch that shares the gate, and to those that start later; the
    command waits for each running one. To run cancelled trials later: tbench resume. Every change is an event
    of the batch, with its reason.
    """
    from terminalbench.cli.options import batch_to_steer
    from terminalbench.runner.control import ControlOrder, await_end, give, give_to_all

    value = None
    if action == "set":
        match = _PARALLEL.fullmatch(targets[0]) if targets else None
        if match is None:
            raise UserError("tbench ctl set: only parallel=N can be set, as in: tbench ctl set parallel=1")
        value, targets = int(match[1]), targets[1:]
    if reason is None:
        if not sys.stdin.isatty():
            raise click.UsageError(
                "Missing option '--reason': give a reason, which is recorded (optional on a terminal)"
            )
        reason = _BY_HAND
    if not reason.strip():
        raise UserError("--reason is empty; give a reason, which is recorded")
    order = ControlOrder(action, targets, reason.strip(), value)
    if gate is not None:
        if target is not None or batch is not None:
            raise UserError("--gate steers all batches that share it; it cannot be combined with --in or --batch")
        place, given = gate, give_to_all(gate.absolute(), order)
    else:
        found = batch_to_steer(BatchChoice(target, batch, results, root))
        place, given = found.folder, give(found, order)
    names = ", ".join("all profiles" if name == "*" else name for name in given.targets)
    click.echo(f"{action}{f' parallel={value}' if value else ''}: {names} ({place})")
    for trial, outcome in await_end(given):
        click.echo(
            f"{trial} has ended: {outcome}" if outcome else f"{trial} is still running: tbench status shows its state"
        )


@click.command("kill")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="End every running batch of this user, or of the folder given by --results.",
)
@click.option(
    "--all-containers",
    is_flag=True,
    help="Also end every running Docker container on this host, including those of other users.",
)
@click.option("--yes", is_flag=True, help="End them. Without --yes, only list what would be ended.")
@on_batch
def kill_command(where: BatchChoice, everything: bool, all_containers: bool, yes: bool) -> int:
    """End the processes and containers of a running batch: gracefully, then hard, then verify.

    Without a target: the running batch of the results folder. Acts only on what was recorded when it was
    started, and on this user's processes. Afterwards the batch can be resumed. Exit code 0: nothing of it runs
    any more (verified); 1: something still runs, or could not be checked; 2: something runs and --yes was not
    given.
    """
    from terminalbench.cli.options import batches_to_end
    from terminalbench.runner.kill import end, find

    batches = batches_to_end(where, everything=everything)
    found = find(batches, all_containers=all_containers)
    _tell(found)
    if not found:
        if found.clear:
            click.echo("nothing is running")
        return EXIT_OK if found.clear else EXIT_FAILURE
    if not yes:
        click.echo("nothing was ended yet: add --yes to end these", err=True)
        return EXIT_USAGE
    left = end(batches, found, all_containers=all_containers)
    if not left.clear:
        click.echo("still running, or in an unknown state:", err=True)
        _tell(left, err=True)
        return EXIT_FAILURE
    click.echo("ended; none of its processes is running")
    return EXIT_OK


def _tell(found: "LiveProcesses", *, err: bool = False) -> None:
    """List what runs: ours to standard output, what is left alone or unknown to standard error."""
    for process in found.processes:
        since = process.worker.started_at[:16].replace("T", " ")
        job = f"  {process.worker.job}" if process.worker.job else ""
        click.echo(f"{process.kind} {process.shown}  since {since}  {from_here(process.batch)}{job}", err=err)
    for container in found.containers:
        click.echo(f"container {container.id[:12]}  {container.project}", err=err)
    for process in found.strangers:
        whose = f"user {process.user}" if process.user is not None else "another user"
        click.echo(f"left alone: {process.kind} {process.shown} belongs to {whose}  {process.batch}", err=True)
    if found.unknown is not None:
        click.echo(f"containers could not be checked: {found.unknown}", err=True)


@click.command("watch")
@click.option("--json", "as_json", is_flag=True, help="Print every event as one line of JSON, then the summary.")
@on_batch
def watch_command(where: BatchChoice, as_json: bool) -> int:
    """Watch a batch or a night live, from any terminal: leave and come back at any time, without any effect on
    the run.

    Without a target: the running batch (of this project first, the latest one first), else the
    newest of the results folder. Not on a terminal: one plain line for each finished trial. Exit code 0: you
    left, or every planned trial was measured; 3: some were not.
    """
    from terminalbench.cli.options import batch_to_watch
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
