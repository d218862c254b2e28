"""The selection of a command, as its command line names it; notes about it go to the error stream."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from terminalbench.cli.completion import batch_names
from terminalbench.cli.options import PATH, batch_option, results_option, root_option
from terminalbench.errors import UserError

if TYPE_CHECKING:
    from terminalbench.experiments.batch import Batch
    from terminalbench.lab.select import SelectedBatches, Target


@dataclass(frozen=True)
class BatchChoice:
    """The words of a command line that name a batch."""

    name: Path | None = None
    number: int | None = None
    results: Path | None = None
    root: Path | None = None

    def refuse_name(self) -> None:
        """Refuse the name of a batch together with `--all`."""
        if self.name is not None or self.number is not None:
            raise click.UsageError("--all cannot be combined with a target")


def on_batch(command: Callable[..., int | None]) -> Any:
    """A command on one batch: its target, `--batch`, `--results` and `--root` become `where`."""

    @wraps(command)
    def called(target: Path | None, batch: int | None, results: Path | None, root: Path | None, **rest: Any) -> Any:
        return command(where=BatchChoice(target, batch, results, root), **rest)

    declared = batch_option(results_option(root_option(called)))
    return click.argument(
        "target", type=PATH, required=False, metavar="[EXPERIMENT.toml|BATCH]", shell_complete=batch_names
    )(declared)


def on_batches(command: Callable[..., int | None]) -> Any:
    """A command on the batches that an experiment, a batch folder or a folder of Harbor jobs names: `selected`."""

    @wraps(command)
    def called(experiment: Path | None, batch: str | None, results: Path | None, root: Path | None, **rest: Any) -> Any:
        from terminalbench.lab.select import select_numbered

        return command(selected=noted(select_numbered(experiment, batch, results, root)), **rest)

    batches = "Numbers of the batches of the experiment. Default: the latest with data."
    declared = click.option("--batch", metavar="N|N,M|all", help=batches)(results_option(root_option(called)))
    target = "[EXPERIMENT.toml|BATCH|JOBS]"
    return click.argument("experiment", type=PATH, metavar=target, required=False, shell_complete=batch_names)(declared)


def one_batch(where: BatchChoice, *, own: bool = False, foreign: bool = False) -> "Target":
    """One batch: see `terminalbench.lab.select.find_target`."""
    from terminalbench.lab.select import SelectedBatches, find_target

    found = find_target(where.name, where.number, where.results, where.root, own=own, foreign=foreign)
    return noted(SelectedBatches((found,))).targets[0]


def noted(selected: "SelectedBatches") -> "SelectedBatches":
    """The batches, after what is to be known about them was said."""
    for target in selected.targets:
        if target.note is not None:
            click.echo(f"note: {target.note}", err=True)
    return selected


def batch_to_watch(where: BatchChoice) -> "Batch":
    """The batch that is named, or the one a folder stands for; else the one that runs, else the newest.

    Of several that run it is this project's before any other, then the one started last; the others are said.
    """
    from terminalbench.lab.select import live_batches, of_this_project, watched_batch

    name = where.name
    if name is not None and name.is_dir() and not (name / "plan.json").is_file():
        return watched_batch(name)
    running = live_batches(where.results) if name is None and where.number is None else []
    if not running:
        return one_batch(where).batch
    elsewhere = "" if where.results is not None or of_this_project(running[0]) else ", which belongs to another project"
    click.echo(f"watching {running[0].folder}{elsewhere}", err=True)
    if running[1:]:
        click.echo(f"also running: {', '.join(str(other.folder) for other in running[1:])}", err=True)
    return running[0]


def batch_to_steer(where: BatchChoice) -> "Batch":
    """The batch that is named, or the only one that runs: in this project, or anywhere."""
    from terminalbench.lab.select import live_batches, of_this_project, refuse_several

    if where.name is not None or where.number is not None:
        return one_batch(where).batch
    running = live_batches(where.results)
    if not running:
        raise UserError("nothing is running", hint="tbench status shows what runs")
    if sum(map(of_this_project, running)) != 1:
        refuse_several(running, "name one with --in")
    return running[0]  # this project's come first


def batches_to_end(where: BatchChoice, *, everything: bool) -> "list[Batch]":
    """The batch that is named; else the only one that runs in the results folder, or the newest when none does.

    The newest may have left something behind. `everything`: all that this user's runs have announced; with a results
    folder those of it, and all others that run there.
    """
    from terminalbench.lab.select import live_batches, refuse_several, results_root
    from terminalbench.live.processes import announced_batches

    if everything:
        where.refuse_name()
        if where.results is None:
            return announced_batches()
    elif where.name is not None or where.number is not None:
        return [one_batch(where, own=True).batch]
    folder = results_root(where.results)
    running = live_batches(folder)
    if everything:
        there = [batch for batch in announced_batches() if batch.folder.resolve().is_relative_to(folder)]
        return list({batch.folder.resolve(): batch for batch in (*there, *running)}.values())
    refuse_several(running, "name the batch to end, or give --all")
    return running or [one_batch(where).batch]
