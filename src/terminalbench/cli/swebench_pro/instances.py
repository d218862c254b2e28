"""`tbench swebench-pro tasks` and `list-instances`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from terminalbench.cli.options import PATH, json_option
from terminalbench.cli.output import print_json
from terminalbench.cli.swebench_pro import instance_picks, picks_of
from terminalbench.errors import EXIT_INCOMPLETE, EXIT_OK, UserError
from terminalbench.text.names import typed
from terminalbench.text.numbers import plural
from terminalbench.text.table import columns

if TYPE_CHECKING:
    from terminalbench.swebench_pro.convert import Conversion


_SHOWN = 5


@click.command("tasks")
@click.argument("rows", metavar="FILE|hf:REVISION")
@click.option("-o", "--output", type=PATH, metavar="DIR", required=True, help="Folder that the tasks are written to.")
@click.option(
    "--evaluator",
    type=PATH,
    metavar="CHECKOUT",
    required=True,
    help="Checkout of the official evaluator: run scripts, parsers, Dockerfiles.",
)
@instance_picks
@click.option("--split", default="test", help="Split of the dataset, with hf:REVISION.")
@click.option(
    "--build", is_flag=True, help="Build images from the Dockerfiles of the checkout. Default: use the official images."
)
@click.option(
    "--host-base", is_flag=True, help="Use this machine's own system instead of debian, ubuntu and python images."
)
@click.option(
    "--agent-network",
    type=click.Choice(["none", "public"]),
    default="none",
    help="Network access while the agent works. An agent inside the environment must reach its "
    "model; with public, it can also find the fix.",
)
@click.option("--cpus", type=click.IntRange(min=1), default=2, help="CPUs of each environment.")
@click.option("--memory-mb", type=click.IntRange(min=128), default=8192, help="Memory of each environment, in MB.")
@click.option("--timeout", type=click.FloatRange(min=1), default=3600, help="Time limit of the tests, in seconds.")
@json_option
def tasks_command(
    rows: str,
    output: Path,
    evaluator: Path,
    split: str,
    agent_network: str,
    timeout: float,
    as_json: bool,
    **given: Any,
) -> int:
    """Make Harbor tasks from SWE-Bench Pro.

    Rows come from a file (parquet, jsonl, csv) or from Hugging Face at a revision. The folder of a task is
    named by its instance; history after the base commit is removed from its image, and a separate verifier runs
    the official steps. A row that cannot become a task is named, the others are written, and the exit code is
    3.
    """
    from terminalbench.swebench_pro.convert import TaskSettings, convert, select
    from terminalbench.swebench_pro.dataset import read_rows
    from terminalbench.swebench_pro.official import Checkout

    checkout = Checkout.at(evaluator)
    read = read_rows(rows, split)
    settled = {name: given.pop(name) for name in ("build", "host_base", "cpus", "memory_mb")}
    picked = select(read.instances, picks_of(given))
    if not picked and not read.refused:
        raise UserError("no instance matches this language and these parts of ids", where=rows)
    settings = TaskSettings(agent_network=agent_network == "public", verifier_sec=timeout, **settled)
    done = convert(read, picked, checkout, output, settings)
    if as_json:
        print_json({**vars(done), "refused": [str(row) for row in done.refused]})
    else:
        click.echo("\n".join(_lines(done, open_network=settings.agent_network)))
    for row in done.refused:
        click.echo(f"refused: {row}", err=True)
    return EXIT_INCOMPLETE if done.refused else EXIT_OK


def _lines(done: "Conversion", *, open_network: bool) -> list[str]:

    lines = [f"{plural(len(done.written), 'task')} in {typed(done.output)}", f"evaluator: {done.evaluator_commit}"]
    lines += [f"dataset: {done.revision}"] if done.revision else []
    for what, ids in (
        ("lists of tests differ from the evaluator's checkout", list(done.drift)),
        ("bash alters the argument of the run script, as with the official evaluator", done.argument_changed),
        ("the problem text mentioned the fix; that part was removed", done.redacted),
    ):
        if ids:
            more = [f"  and {len(ids) - _SHOWN:,} more (--json names them)"] if len(ids) > _SHOWN else []
            lines += [f"note: {plural(len(ids), 'instance')}: {what}", *(f"  {name}" for name in ids[:_SHOWN]), *more]
    if open_network:
        lines.append(
            "note: the agent has network access and can fetch the fix; results flag connections to hosts that serve it"
        )
    return lines


@click.command("list-instances")
@click.argument("rows", required=False, metavar="[FILE|hf:REVISION]")
@click.option("--tasks", type=PATH, metavar="DIR", help="Count the instances of this folder of tasks.")
@instance_picks
@click.option("--split", default="test", help="Split of the dataset, with hf:REVISION.")
@json_option
def list_instances_command(rows: str | None, tasks: Path | None, split: str, as_json: bool, **given: Any) -> int:
    """Count instances by language and repository: of a dataset file, of Hugging Face, or of a folder of tasks."""
    from terminalbench.swebench_pro.convert import counted, read_folder, select
    from terminalbench.swebench_pro.dataset import read_rows

    if (rows is None) == (tasks is None):
        raise UserError("name a file of rows or hf:REVISION, or a folder: --tasks DIR")
    read = read_rows(rows, split) if rows is not None else None
    found = read.instances if read is not None else read_folder(tasks or Path())
    wanted = select(found, picks_of(given))
    languages, repositories = counted(one.language for one in wanted), counted(one.repo for one in wanted)
    refused = read.refused if read is not None else ()
    if as_json:
        ids = [{"instance_id": one.instance_id, "repo": one.repo, "language": one.language} for one in wanted]
        shown = {"count": len(wanted), "languages": languages, "repositories": repositories}
        print_json({**shown, "instances": ids, "refused": [str(row) for row in refused]})
    else:
        for title, table in (("language", languages), ("repository", repositories)):
            click.echo(columns([[title, "instances"], *([name, f"{n:,}"] for name, n in table.items())], left=(0,)))
            click.echo()
        click.echo(plural(len(wanted), "instance"))
    for row in refused:
        click.echo(f"refused: {row}", err=True)
    return EXIT_INCOMPLETE if refused else EXIT_OK
