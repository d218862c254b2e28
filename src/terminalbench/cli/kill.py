"""`tbench kill`."""

from typing import TYPE_CHECKING

import click

from terminalbench.cli.select import BatchChoice, on_batch
from terminalbench.errors import EXIT_FAILURE, EXIT_OK, EXIT_USAGE

if TYPE_CHECKING:
    from terminalbench.runner.kill import LiveProcesses


@click.command("kill")
@click.option(
    "--all", "everything", is_flag=True, help="Every running batch of this user; with --results, of that folder."
)
@click.option(
    "--all-containers", is_flag=True, help="Also every running Docker container on this host, whoever's it is."
)
@click.option("--yes", is_flag=True, help="Do it. Without this, only list what would be ended.")
@on_batch
def command(where: BatchChoice, everything: bool, all_containers: bool, yes: bool) -> int:
    """End the processes and containers of a running batch: gracefully, then hard, then verify.

    Without a target: the batch that runs in the results folder. Acts only on what was recorded when it was started,
    and on this user's processes. Afterwards the batch can be resumed. Exit code 0: nothing of it runs any more
    (verified); 1: something is left, or could not be looked at; 2: something runs and --yes was not given.
    """
    from terminalbench.cli.select import batches_to_end
    from terminalbench.runner.kill import end, find

    batches = batches_to_end(where, everything=everything)
    found = find(batches, all_containers=all_containers)
    _tell(found)
    if not found:
        if found.clear:
            click.echo("nothing is running")
        return EXIT_OK if found.clear else EXIT_FAILURE
    if not yes:
        click.echo("nothing was ended; add --yes to end these", err=True)
        return EXIT_USAGE
    left = end(batches, found, all_containers=all_containers)
    if not left.clear:
        click.echo("still there or not known:", err=True)
        _tell(left, err=True)
        return EXIT_FAILURE
    click.echo("ended; nothing of it runs any more")
    return EXIT_OK


def _tell(found: "LiveProcesses", *, err: bool = False) -> None:
    """List what runs: ours to standard output, what is left alone or unknown to standard error."""
    from terminalbench.text.paths import from_here

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
        click.echo(f"containers could not be looked at: {found.unknown}", err=True)
