"""`tbench swebench-pro experiment`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from terminalbench.cli.options import PATH
from terminalbench.cli.swebench_pro import (
    executor_option,
    instance_picks,
    log_file_option,
    output_dir_option,
    picks_of,
)
from terminalbench.errors import EXIT_OK, UserError
from terminalbench.text.names import typed

if TYPE_CHECKING:
    from terminalbench.swebench_pro.convert import Picks, TaskInstance
    from terminalbench.swebench_pro.projections import Output


_MODEL = "moonshotai/kimi-k2-0905"


@click.command("experiment")
@click.option(
    "--arms",
    default="singleshot,s1_direct,s1_tdd",
    metavar="ARM[,ARM]",
    help="Workflows (shipped, or .toml files), agents, command:PROGRAM, FILE.toml:PROFILE of an experiment file.",
)
@click.option("--model", default=_MODEL, help="Name of the model at its provider.")
@click.option("--provider", metavar="NAME", help="Provider of the model: ollama, openrouter, huggingface, openai, ...")
@click.option("--base-url", metavar="URL", help="URL of the provider's server. Your own server needs no key.")
@click.option(
    "--tasks",
    default="swebench-pro",
    metavar="DIR|FILE|hf:REVISION",
    help="Folder of instance tasks, or rows from which tasks are made first (with --evaluator).",
)
@click.option(
    "--evaluator", type=PATH, metavar="CHECKOUT", help="Checkout of the official evaluator; needed with rows."
)
@click.option("--split", default="test", help="Split of the dataset, with hf:REVISION.")
@instance_picks
@click.option("--max-workers", type=click.IntRange(min=1), default=1, help="Trials at once, over all arms.")
@output_dir_option
@click.option("--attempts", type=click.IntRange(min=1), default=1, help="Runs of each pair of arm and instance.")
@click.option(
    "--resume",
    is_flag=True,
    help="Continue the experiment in the output folder, if there is one; new instances, arms or attempts are added.",
)
@click.option(
    "--retry-errors",
    is_flag=False,
    flag_value="all",
    metavar="[CLASS]",
    help="Also retry trials that ended with an error, as in tbench resume. Implies --resume.",
)
@click.option(
    "--evaluate", is_flag=True, help="Evaluate the predictions again, independently of the trials, and draw the charts."
)
@click.option("--eval-max-workers", type=click.IntRange(min=1), default=4, help="Trials at once during --evaluate.")
@click.option("--watch", is_flag=True, help="Show a live table of the arms; without a terminal, a line for each trial.")
@click.option(
    "--trial-timeout", type=click.FloatRange(min=1), metavar="SEC", help="Time limit of the agent in a trial."
)
@click.option(
    "--price",
    metavar="IN,OUT[,CACHED]",
    help="Price of the model in USD per million tokens; 0 for your own model.",
)
@click.option("--max-cost", type=click.FloatRange(min=0, min_open=True), metavar="USD", help="Budget of all trials.")
@click.option(
    "--container-env",
    help="Where trials run: docker, local, or another container_env. Default: docker if installed, else local.",
)
@executor_option
@log_file_option
def experiment_command(
    arms: str,
    tasks: str,
    output_dir: Path,
    resume: bool,
    retry_errors: str | None,
    evaluate: bool,
    eval_max_workers: int,
    watch: bool,
    log_file: Path | None,
    **given: Any,
) -> int:
    """Run arms on instances: each arm a profile, each instance a task, in one batch.

    An arm is a guarded workflow or any agent. Writes an experiment file into the output folder and runs it;
    results.jsonl, traces/, artifact_dags/ and predictions/ beside it grow as trials end. A key is taken from
    LLM_API_KEY, or from the provider's own variable; it is never an argument and never written. Exit codes are those of
    tbench run.
    """
    from terminalbench.cli.progress import ArmTeller
    from terminalbench.cli.run import show_end
    from terminalbench.experiments.environments import usual_environment
    from terminalbench.report.run_end import ResumeWords
    from terminalbench.swebench_pro.arms import ArmModel, price_of
    from terminalbench.swebench_pro.experiment import ExperimentRequest, run_experiment
    from terminalbench.swebench_pro.projections import Output

    given["container_env"] = given["container_env"] or usual_environment()
    names = tuple(filter(None, (arm.strip() for arm in arms.split(","))))
    if not names:
        raise UserError("--arms names no arm", hint="name at least one, as in --arms singleshot,s1_tdd")
    output = Output(output_dir)
    folder, instances = _instances(tasks, output, given)
    price = price_of(given["price"]) if given["price"] else None
    wanted = ExperimentRequest(
        arms=names,
        instances=instances,
        tasks=folder,
        asked=ArmModel(given["model"], given["provider"], given["base_url"] or None, price),
        trial_timeout_sec=given["trial_timeout"],
        max_cost_usd=given["max_cost"],
        **{name: given[name] for name in ("attempts", "max_workers", "container_env", "executor")},
    )
    with ArmTeller(watch=watch, log_file=log_file) as teller:
        teller.say("checking arms, instances and environment ...")
        going_on, listener = resume or retry_errors is not None, teller.listener()
        done = run_experiment(wanted, output, going_on=going_on, retry_errors=retry_errors, listener=listener)
        teller.done()
    again = "this command with"
    ways = ResumeWords(
        f"{again} --resume", f"{again} --retry-errors", f"{again} --resume and a higher --max-cost", "it by --price"
    )
    code = show_end(done.ended, as_json=False, watched=watch, ways=ways)
    click.echo(f"results: {typed(done.projected.results)}")
    click.echo(f"why runs failed: tbench swebench-pro analyze-errors --results {typed(done.projected.results)}")
    if evaluate and not done.ended.interrupted:
        judged = _evaluate(output, folder, eval_max_workers, given["container_env"])
        return code if code != EXIT_OK else judged
    return code


def _instances(tasks: str, output: "Output", given: dict[str, Any]) -> "tuple[Path, tuple[TaskInstance, ...]]":
    """The folder of tasks, made of rows where those are named, and the instances that are wanted of it."""
    from terminalbench.swebench_pro.convert import read_folder, select

    folder, picks = Path(tasks), picks_of(given)
    if tasks.startswith("hf:") or folder.is_file():
        if given["evaluator"] is None:
            what = "making tasks from rows needs a checkout of the official evaluator"
            raise UserError(what, hint="give --evaluator CHECKOUT")
        folder = output.folder / "tasks"
        ids = _converted(tasks, folder, given, picks)
        return folder, tuple(one for one in read_folder(folder) if one.instance_id in ids)
    if given["split"] != "test" or given["evaluator"] is not None:
        raise UserError("--split and --evaluator work with rows only (a file, or hf:REVISION)")
    if not folder.is_dir():
        make = f"tbench swebench-pro tasks FILE|hf:REVISION -o {tasks} --evaluator CHECKOUT"
        hint = f"create it with {make}, or name another folder with --tasks DIR"
        raise UserError("there is no folder of tasks here", where=tasks, hint=hint)
    return folder, tuple(select(read_folder(folder), picks))


def _converted(rows: str, folder: Path, given: dict[str, Any], picks: "Picks") -> set[str]:
    """Make tasks of the rows that are picked. Those that are there stay: what a run was planned with is not changed."""
    from terminalbench.swebench_pro.convert import TaskSettings, convert, select
    from terminalbench.swebench_pro.dataset import read_rows
    from terminalbench.swebench_pro.official import Checkout

    read = read_rows(rows, given["split"])
    picked = select(read.instances, picks)
    new = [one for one in picked if not (folder / one.instance_id).is_dir()]
    if new or not folder.is_dir():
        for row in convert(read, new, Checkout.at(given["evaluator"]), folder, TaskSettings()).refused:
            click.echo(f"refused: {row}", err=True)
    return {one.instance_id for one in picked}


def _evaluate(output: "Output", tasks: Path, workers: int, container_env: str) -> int:
    """Judge the predictions on their own, then draw the charts."""
    from terminalbench.cli.swebench_pro.results import draw, evaluate_command
    from terminalbench.swebench_pro.projections import PREDICTIONS
    from terminalbench.swebench_pro.rows import RESULTS

    given = {"predictions_dir": output.folder / PREDICTIONS, "tasks": tasks, "max_workers": workers}
    code = click.get_current_context().invoke(evaluate_command, **given, container_env=container_env)
    draw([output.folder / RESULTS], output.folder)
    return code
