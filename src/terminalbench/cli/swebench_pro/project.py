"""`tbench swebench-pro project`."""

from pathlib import Path

import click

from terminalbench.cli.options import PATH
from terminalbench.errors import EXIT_OK


@click.command("project")
@click.argument("batches", nargs=-1, required=True, metavar="DIR|BATCH...")
@click.option("--output-dir", type=PATH, metavar="DIR", help="Where to write. Default: DIR, of an experiment's output.")
@click.option(
    "--submission", type=PATH, metavar="DIR", help="Also write a folder for each arm as the official runs have it."
)
def command(batches: tuple[str, ...], output_dir: Path | None, submission: Path | None) -> int:
    """Write results.jsonl, traces/, artifact_dags/ and predictions/ again, from batches.

    DIR is the output folder of tbench swebench-pro experiment; a batch is named as for tbench compare. Several are
    merged, the shards of an experiment too, with the verdicts of their evaluations. Nothing reads what is written here
    to run: delete it at any time.
    """
    from terminalbench.swebench_pro.output import batches_of
    from terminalbench.swebench_pro.predictions import write_submission
    from terminalbench.swebench_pro.projections import project
    from terminalbench.swebench_pro.rows import read_results
    from terminalbench.swebench_pro.verdicts import merge_evaluations
    from terminalbench.text.numbers import plural
    from terminalbench.text.paths import typed

    found, output = batches_of(batches, output_dir)
    made = project(found, output)
    click.echo(f"{plural(made.rows, 'run')}, {plural(made.traces, 'trace')}: {typed(made.results)}")
    for path in made.predictions:
        click.echo(f"predictions: {typed(path)}")
    verdicts = merge_evaluations([Path(name) for name in batches], output)
    if verdicts is not None:
        click.echo(f"verdicts: {typed(verdicts)}")
    if submission is not None:
        for told in write_submission(read_results(made.results).rows, submission):
            click.echo(
                f"submission: {typed(told.folder)}: {told.verdicts} of {plural(told.runs, 'run')} with a verdict"
            )
    return EXIT_OK
