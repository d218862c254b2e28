"""`tbench plan`."""

from pathlib import Path

import click

from terminalbench.cli.options import (
    ListCommand,
    experiment_argument,
    json_option,
    profiles_option,
    root_option,
    tasks_option,
)
from terminalbench.errors import EXIT_OK


@click.command("plan", cls=ListCommand)
@experiment_argument
@tasks_option
@profiles_option
@click.option("--batch", type=click.IntRange(min=0), help="Plan into this batch; says what of it is reused.")
@json_option
@click.option("--job-configs", type=click.Path(path_type=Path), metavar="DIR", help="Write each job's JobConfig here.")
@root_option
def command(
    experiment: Path,
    tasks: tuple[str, ...],
    profiles: tuple[str, ...],
    batch: int | None,
    as_json: bool,
    job_configs: Path | None,
    root: Path | None,
) -> int:
    """Show exactly what would run: profiles and how they differ, trials in order, one job per profile.

    Needs no key and no network, takes no batch number, and writes nothing (but what --job-configs asks for).
    """
    from terminalbench.experiments.plan import Selection
    from terminalbench.lab.plan import plan_file

    shown = plan_file(experiment, root, Selection(tasks, profiles), batch)
    if job_configs is not None:
        shown.write_job_configs(job_configs)
    click.echo(shown.as_json() if as_json else shown.as_text(), nl=False)
    return EXIT_OK
