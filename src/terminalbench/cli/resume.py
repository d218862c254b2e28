"""`tbench resume`."""

from typing import Any

import click

from terminalbench.cli.names import names_of
from terminalbench.cli.options import ListCommand, json_option, junit_option, watch_option
from terminalbench.cli.select import BatchChoice, on_batch


@click.command("resume", cls=ListCommand)
@click.option("--attempts", type=click.IntRange(min=1), help="Add attempts until each task has this many.")
@click.option(
    "--retry-errors",
    is_flag=False,
    flag_value="all",
    metavar="[CLASS]",
    help="Run errored trials again: all that are the bench's fault, or one class. What a profile does (agent_crash, "
    "...) is run again by name only, and its first verdict counts all the same.",
)
@click.option(
    "--profiles",
    multiple=True,
    metavar="KEY...",
    shell_complete=names_of("profiles"),
    help="Only what is missing of these profiles; the others stay as they are. Name the batch before it.",
)
@click.option(
    "--top-up",
    is_flag=True,
    help="Add attempts where profiles disagree or are unstable, under the [top_up] rule of the plan.",
)
@click.option(
    "--accept-changed",
    is_flag=True,
    help="Go on although code, skills or tasks changed since the plan; compare shows it as a departure.",
)
@junit_option
@watch_option
@json_option
@on_batch
def command(where: BatchChoice, as_json: bool, watch: bool, **wanted: Any) -> int:
    """Go on with a batch: what is finished stays, what is missing runs.

    An experiment file that has gained attempts, tasks or profiles adds them to the batch; one that changed otherwise
    is refused. Without a target: the newest batch of the results folder.
    """
    from terminalbench.cli.run import resume_batch
    from terminalbench.cli.select import one_batch

    return resume_batch(one_batch(where), as_json=as_json, watch=watch, **wanted)
