"""`tbench swebench-pro evaluate`, `analyze-errors`, `visualize`, `import` and `project`."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from terminalbench.cli.options import PATH, json_option
from terminalbench.cli.output import print_json, text_width
from terminalbench.cli.swebench_pro import executor_option, results_file_option, shard_option
from terminalbench.errors import EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK, UserError
from terminalbench.text.foreign import printable
from terminalbench.text.names import from_here, typed
from terminalbench.text.numbers import NOTHING, plural, some, tokens
from terminalbench.text.table import fitted

if TYPE_CHECKING:
    from terminalbench.swebench_pro.evaluate import EvaluationResult
    from terminalbench.swebench_pro.predictions import Predictions


@click.command("evaluate")
@click.option(
    "--predictions-dir",
    type=PATH,
    required=True,
    metavar="DIR",
    help="Folder with one file of predictions for each arm.",
)
@click.option("--tasks", type=PATH, required=True, metavar="DIR", help="Folder of the instances' tasks.")
@click.option("--arms", multiple=True, metavar="NAME[,NAME]", help="Only these files, named without their extension.")
@click.option(
    "--eval-mode",
    type=click.Choice(["local", "official"]),
    default="local",
    help="local: evaluate as a batch of tbench. official: use the official evaluator.",
)
@click.option("--max-workers", type=click.IntRange(min=1), default=4, help="Instances at once.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    metavar="SEC",
    help="local: time limit of the tests of an instance; default: the limit of its task. official: time limit of a "
    "whole arm.",
)
@click.option(
    "--container-env", metavar="NAME", help="local: where the trials run. Default: docker if installed, else local."
)
@click.option("--evaluator", type=PATH, metavar="CHECKOUT", help="official: checkout of the evaluator.")
@click.option(
    "--evaluator-python", metavar="PROGRAM", help="official: Python interpreter with the evaluator's dependencies."
)
@shard_option
@executor_option
@json_option
def evaluate_command(
    predictions_dir: Path,
    tasks: Path,
    arms: tuple[str, ...],
    eval_mode: str,
    max_workers: int,
    timeout: float | None,
    container_env: str | None,
    evaluator: Path | None,
    evaluator_python: str | None,
    shard: tuple[int, int] | None,
    executor: str | None,
    as_json: bool,
) -> int:
    """Evaluate patches with the tests of their instances: resolved, unresolved, or an error of the evaluation.

    Any file of predictions is accepted, also from other tools. The verdicts are in evaluation/resolved.json of
    the folder, by instance and arm; the batch with its trials is beside it. Run it again to continue: verdicts
    on the same patches are kept, errors are tried again. Exit code 3: some have no verdict.
    """
    from terminalbench.cli.progress import RunTeller
    from terminalbench.experiments.environments import usual_environment
    from terminalbench.swebench_pro.convert import Picks, read_folder, select
    from terminalbench.swebench_pro.dataset import parts_of
    from terminalbench.swebench_pro.evaluate import FOLDER, LocalEvaluation, evaluate_local, evaluate_official
    from terminalbench.swebench_pro.official import Checkout, EvaluatorSettings
    from terminalbench.swebench_pro.predictions import find, read

    every = read_folder(tasks)
    instances = select(every, Picks(shard=shard))
    known, wanted = ({one.instance_id for one in found} for found in (every, instances))
    given = [read(file, known).only(wanted) for file in find(predictions_dir, parts_of(arms))]
    for arm in given:
        _tell(arm)
    folder = predictions_dir / FOLDER
    if eval_mode == "local":
        how = LocalEvaluation(container_env or usual_environment(), max_workers, timeout, executor)
        teller = RunTeller(quiet=as_json)
        with teller:
            listener = teller.listener("evaluating {trials} in batch {number} ({place})")
            done = evaluate_local(given, instances, folder, how, listener)
        teller.done()
    elif evaluator is None:
        raise UserError("--eval-mode official needs a checkout of the evaluator: --evaluator CHECKOUT")
    else:
        drive = EvaluatorSettings(evaluator_python or sys.executable, max_workers, timeout)
        done = evaluate_official(given, instances, folder, Checkout.at(evaluator), drive)
    _show(done, given, as_json=as_json)
    if done.interrupted:
        return EXIT_INTERRUPTED
    complete = all(one.resolved is not None for one in done.verdicts)
    return EXIT_OK if complete and len(done.verdicts) == sum(len(arm.patches) for arm in given) else EXIT_INCOMPLETE


def _tell(arm: "Predictions") -> None:
    """Say what a file has too much or too little of."""
    for noun, what, ids in (
        ("prediction", "for unknown instances", arm.unknown),
        ("instance", "predicted twice; the last prediction counts", arm.duplicates),
        ("prediction", "with an empty patch", arm.empty),
        ("instance", "without a prediction", arm.missing),
    ):
        if ids:
            click.echo(printable(f"{arm.arm}: {plural(len(ids), noun)} {what}: {some(list(ids), 3)}"), err=True)


def _show(done: "EvaluationResult", given: "Sequence[Predictions]", *, as_json: bool) -> None:
    from terminalbench.swebench_pro.predictions import count

    counts = {arm.arm: count(one for one in done.verdicts if one.arm == arm.arm) for arm in given}
    for problem in done.problems:
        click.echo(printable(problem), err=True)
    if as_json:
        told = {arm.arm: {k: getattr(arm, k) for k in ("unknown", "duplicates", "empty", "missing")} for arm in given}
        document = {"arms": counts, "predictions": told, "verdicts": done.verdicts, "file": done.file}
        print_json({**document, "batches": done.batches})
        return
    suspect = any(found.suspect for found in counts.values())
    rows = [["arm", "resolved", "unresolved", "not applied", "errors", "missing", *(["suspect"] if suspect else [])]]
    for arm in given:
        found = counts[arm.arm]
        numbers = [found.resolved, found.unresolved, found.not_applied, found.eval_error, len(arm.missing)]
        numbers += [found.suspect] if suspect else []
        rows.append([arm.arm, *(NOTHING if number is None else f"{number:,}" for number in numbers)])
    click.echo(fitted(rows, (0,), text_width()))
    for one in done.verdicts:
        if one.reason is not None:
            click.echo(printable(f"{one.arm}: {one.instance_id}: {one.reason}"), err=True)
        if one.suspect:
            click.echo(printable(f"{one.arm}: {one.instance_id}: suspect: {', '.join(one.suspect)}"), err=True)
    places = [f"verdicts: {from_here(done.file)}", *(f"batch: {from_here(one)}" for one in done.batches)]
    click.echo("\n".join(["", *places]))


@click.command("analyze-errors")
@results_file_option
@click.option("--output-dir", type=PATH, metavar="DIR", help="Where to write. Default: the folder of the results.")
@click.option("--traces/--no-traces", default=True, help="Read the traces too: retries and escalations.")
def analyze_errors_command(results: Path, output_dir: Path | None, traces: bool) -> int:
    """Show why runs did not resolve their instance: by arm and final guard, with every retry and escalation.

    Writes final_error_analysis_<time>.md and final_errors_<time>.json; the last of each is also called latest. Results
    of AtomicGuard are read too.
    """
    from terminalbench.swebench_pro.error_analysis import analyze
    from terminalbench.swebench_pro.error_report import summary, write

    found = analyze(results, traces=traces)
    written = write(found, output_dir or results.parent, datetime.now(UTC))
    for line in summary(found):
        click.echo(line)
    click.echo(f"\nreport: {typed(written.report)}\nfor programs: {typed(written.errors)}")
    return EXIT_OK


@click.command("visualize")
@click.option(
    "--results",
    type=PATH,
    multiple=True,
    default=(Path("output/swe_bench_pro/results.jsonl"),),
    show_default="output/swe_bench_pro/results.jsonl",
    metavar="PATH",
    help="A results.jsonl; or what tbench compare reads: eval_results.json, a folder of a leaderboard. Repeatable.",
)
@click.option(
    "--resolved",
    type=PATH,
    metavar="FILE",
    help="Use the verdicts of this evaluation (resolved.json) instead of those in the results.",
)
@click.option(
    "--output-dir",
    type=PATH,
    metavar="DIR",
    help="Folder that charts/ is written to. Default: the folder of the first results.",
)
def visualize_command(results: tuple[Path, ...], resolved: Path | None, output_dir: Path | None) -> int:
    """Draw results: pass rates with intervals, cost, tokens per step, wall time, outcomes, paired effects.

    Writes charts/*.svg and charts/index.html, which needs nothing else. Statistics and denominators are those of tbench
    compare; an arm that sees the hidden verdict is left out.
    """
    draw(results, output_dir or results[0].parent, resolved)
    return EXIT_OK


def draw(results: Sequence[Path], output: Path, resolved: Path | None = None) -> None:
    """Write the charts of results below a folder, and say where."""
    from terminalbench.swebench_pro.rows import read_arms
    from terminalbench.swebench_pro.visualize import FOLDER, make_charts, with_verdicts, write

    found = read_arms(results)
    charts = make_charts(with_verdicts(found.rows, resolved), found.bad_lines)
    for note in (*found.notes, *charts.notes):
        click.echo(printable(note), err=True)
    page = write(charts, output / FOLDER, ", ".join(map(str, results)))
    for contrast in charts.comparison.contrasts:
        click.echo(contrast.sentence)
    click.echo(f"charts: {typed(page)}")


@click.command("import")
@click.argument("folder", type=PATH, metavar="DIR")
@click.option(
    "--output-dir", type=PATH, required=True, metavar="DIR", help="Where to write; must not be the imported folder."
)
def import_command(folder: Path, output_dir: Path) -> int:
    """Convert AtomicGuard results (results.jsonl, artifact_dags/) to the format of tbench swebench-pro experiment.

    analyze-errors and visualize read what is written. Tokens are summed over all artifacts, rejected ones too; a run
    that left no patch is a failure, whatever its row says.
    """
    from terminalbench.swebench_pro.legacy import read_legacy
    from terminalbench.swebench_pro.projections import write

    if output_dir.resolve() == folder.resolve():
        raise UserError("is the folder that is imported", where="--output-dir", hint="name another folder")
    found = read_legacy(folder)
    made = write(found.sources, output_dir)
    click.echo(f"{plural(made.rows, 'run')}, {plural(made.traces, 'graph')}: {typed(made.results)}")
    if found.tokens_in_rows != found.tokens_in_artifacts:
        click.echo(f"tokens: {tokens(found.tokens_in_rows)} in the rows, {tokens(found.tokens_in_artifacts)} in all")
    if found.failed_as_success:
        click.echo(f"failures that their rows call successes: {found.failed_as_success}")
    for what, many in (("line", found.bad_lines), ("artifact", found.bad_objects)):
        if many:
            click.echo(f"{plural(many, what)} could not be read", err=True)
    return EXIT_OK


@click.command("project")
@click.argument("batches", nargs=-1, required=True, metavar="DIR|BATCH...")
@click.option(
    "--output-dir", type=PATH, metavar="DIR", help="Where to write. Default: DIR, if it is the output of an experiment."
)
@click.option(
    "--submission", type=PATH, metavar="DIR", help="Also write a folder for each arm, laid out as the official runs."
)
def project_command(batches: tuple[str, ...], output_dir: Path | None, submission: Path | None) -> int:
    """Write results.jsonl, traces/, artifact_dags/ and predictions/ again, from batches.

    DIR is the output folder of tbench swebench-pro experiment; a batch is named as for tbench compare. Several
    are merged, the shards of an experiment too, with the verdicts of their evaluations. No run reads these
    files: you can delete them at any time.
    """
    from terminalbench.swebench_pro.predictions import merge_evaluations, write_submission
    from terminalbench.swebench_pro.projections import batches_of, project

    found, output = batches_of(batches, output_dir)
    made = project(found, output)
    click.echo(f"{plural(made.rows, 'run')}, {plural(made.traces, 'trace')}: {typed(made.results)}")
    for path in made.predictions:
        click.echo(f"predictions: {typed(path)}")
    verdicts = merge_evaluations([Path(name) for name in batches], output)
    if verdicts is not None:
        click.echo(f"verdicts: {typed(verdicts)}")
    if submission is not None:
        for told in write_submission(output, submission):
            judged = f"{told.verdicts} of {plural(told.runs, 'run')} with a verdict"
            click.echo(f"submission: {typed(told.folder)}: {judged}")
    return EXIT_OK
