"""`tbench run`."""

from pathlib import Path

import click

from terminalbench.cli.options import (
    ListCommand,
    experiment_argument,
    json_option,
    label_option,
    profiles_option,
    root_option,
    tasks_option,
    watch_option,
)
from terminalbench.errors import EXIT_OK, UserError


@click.command("run", cls=ListCommand)
@experiment_argument
@tasks_option
@profiles_option
@label_option
@click.option("--batch", type=click.IntRange(min=0), help="Go on with this batch, as tbench resume does.")
@click.option("--dry-run", is_flag=True, help="The same as tbench plan: show what would run.")
@click.option("--detach", is_flag=True, help="Run in the background, without this terminal.")
@click.option("--strict", is_flag=True, help="Refuse to run when a task or profile would be left out.")
@watch_option
@json_option
@root_option
def command(
    experiment: Path,
    tasks: tuple[str, ...],
    profiles: tuple[str, ...],
    labels: dict[str, str],
    batch: int | None,
    dry_run: bool,
    detach: bool,
    strict: bool,
    watch: bool,
    as_json: bool,
    root: Path | None,
) -> int:
    """Run an experiment: one Harbor job per profile, in a new batch.

    What cannot run (a task the environment cannot hold, a profile without its key) is found first and left out with
    its reason; the rest runs. Exit code 0: every planned trial was measured; 3: some were not; 130: interrupted.
    """
    from terminalbench.experiments.plan import Selection

    selection = Selection(tasks, profiles, labels)
    if dry_run:
        from terminalbench.lab.plan import plan_file

        shown = plan_file(experiment, root, selection, batch)
        click.echo(shown.as_json() if as_json else shown.as_text(), nl=False)
        return EXIT_OK
    if detach:
        from terminalbench.cli.detach import run_detached

        if watch:
            raise UserError("--detach and --watch do not go together", hint="start it, then: tbench watch")

        return run_detached()
    if batch is not None:
        from terminalbench.cli.running import resume_target
        from terminalbench.lab.select import find_target
        from terminalbench.runner.resume import ResumeRequest

        if tasks or profiles or labels:
            raise UserError("--batch goes on with a whole batch; --tasks, --profiles and --label do not go with it")
        target = find_target(experiment, batch, None, root)
        return resume_target(target, ResumeRequest(), as_json=as_json, watch=watch, strict=strict)
    from terminalbench.cli.running import run_file

    return run_file(experiment, root, selection, strict=strict, as_json=as_json, watch=watch)
