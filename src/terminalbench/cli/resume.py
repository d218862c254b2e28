"""`tbench resume`."""

from pathlib import Path

import click

from terminalbench.cli.options import json_option, results_option, root_option, watch_option


@click.command("resume")
@click.argument("target", type=click.Path(path_type=Path), required=False, metavar="[EXPERIMENT.toml|BATCH]")
@click.option("--batch", type=click.IntRange(min=0), help="Which batch of the experiment. Default: the latest.")
@click.option("--attempts", type=click.IntRange(min=1), help="Add attempts until each task has this many.")
@click.option(
    "--retry-errors",
    is_flag=False,
    flag_value="all",
    metavar="[CLASS]",
    help="Run errored trials again (of one class, or all); the new ones supersede them.",
)
@click.option(
    "--top-up",
    is_flag=True,
    help="Add attempts where profiles disagree or are unstable, under the [top_up] rule of the plan.",
)
@watch_option
@json_option
@results_option
@root_option
def command(
    target: Path | None,
    batch: int | None,
    attempts: int | None,
    retry_errors: str | None,
    top_up: bool,
    watch: bool,
    as_json: bool,
    results: Path | None,
    root: Path | None,
) -> int:
    """Go on with a batch: what is finished stays, what is missing runs.

    An experiment file that has gained attempts, tasks or profiles adds them to the batch; one that changed otherwise
    is refused. Without a target: the newest batch of the results folder.
    """
    from terminalbench.cli.run import resume_batch
    from terminalbench.cli.select import one_batch

    found = one_batch(target, batch, results, root)
    return resume_batch(
        found, as_json=as_json, watch=watch, attempts=attempts, retry_errors=retry_errors, top_up=top_up
    )
