"""`tbench kill`."""

from pathlib import Path

import click

from terminalbench.cli.options import root_option
from terminalbench.cli.places import results_option
from terminalbench.errors import EXIT_FAILURE, EXIT_OK, EXIT_USAGE


@click.command("kill")
@click.argument("target", type=click.Path(path_type=Path), required=False, metavar="[EXPERIMENT.toml|BATCH]")
@click.option("--batch", type=click.IntRange(min=0), help="Which batch of the experiment. Default: the latest.")
@click.option("--all", "everything", is_flag=True, help="Every running batch of this user.")
@click.option(
    "--all-containers", is_flag=True, help="Also every running Docker container on this host, whoever's it is."
)
@click.option("--yes", is_flag=True, help="Do it. Without this, only list what would be ended.")
@results_option
@root_option
def command(
    target: Path | None,
    batch: int | None,
    everything: bool,
    all_containers: bool,
    yes: bool,
    results: Path | None,
    root: Path | None,
) -> int:
    """End the processes and containers of a running batch: gracefully, then hard, then verify.

    Acts only on what was recorded when it was started. Afterwards the batch can be resumed. Exit code 0: nothing of
    it runs any more (verified); 1: something is left; 2: something runs and --yes was not given.
    """
    from terminalbench.cli.targets import find_target
    from terminalbench.runner.kill import end, find
    from terminalbench.runner.live import announced_batches

    batches = announced_batches() if everything else [find_target(target, batch, results, root).batch]
    found = find(batches, all_containers=all_containers)
    if not found:
        click.echo("nothing is running")
        return EXIT_OK
    for process in found.processes:
        click.echo(f"{process.kind} {process.pid}  {process.job or ''}  since {process.since}  {process.batch}")
    for container in found.containers:
        click.echo(f"container {container.id}  {container.project}")
    if not yes:
        click.echo("nothing was ended; add --yes to end these", err=True)
        return EXIT_USAGE
    left = end(batches, found, all_containers=all_containers)
    if left:
        for process in left.processes:
            click.echo(f"still there: {process.kind} {process.pid}", err=True)
        for container in left.containers:
            click.echo(f"still there: container {container.id}", err=True)
        return EXIT_FAILURE
    click.echo("ended; nothing of it runs any more")
    return EXIT_OK
