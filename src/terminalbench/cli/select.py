"""What a command works on, as it was named on its command line; notes about it go to the error stream."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from terminalbench.errors import UserError

if TYPE_CHECKING:
    from terminalbench.experiments.batch import Batch
    from terminalbench.lab.select import Selected, Target


def one_batch(
    name: Path | None,
    number: int | None = None,
    results: Path | None = None,
    root: Path | None = None,
    *,
    own: bool = False,
    with_data: bool = False,
) -> "Target":
    """One batch: see `terminalbench.lab.select.find_target`."""
    from terminalbench.lab.select import Selected, find_target

    found = find_target(name, number, results, root, own=own, with_data=with_data)
    return noted(Selected((found,))).targets[0]


def noted(selected: "Selected") -> "Selected":
    """The batches, after what is to be known about them was said."""
    for target in selected.targets:
        if target.note is not None:
            click.echo(f"note: {target.note}", err=True)
    return selected


def batch_to_watch(name: Path | None, number: int | None, results: Path | None, root: Path | None) -> "Batch":
    """The batch that is named, or the one a folder stands for; else the one that runs, else the newest.

    Of several that run it is this project's before any other, then the one started last; the others are said.
    """
    from terminalbench.lab.select import live_batches, of_this_project, watched_batch

    if name is not None:
        folder_of_others = name.is_dir() and not (name / "plan.json").is_file()
        return watched_batch(name) if folder_of_others else one_batch(name, number, results, root).batch
    running = live_batches(results) if number is None else []
    if not running:
        return one_batch(None, number, results, root).batch
    elsewhere = "" if results is not None or of_this_project(running[0]) else ", which is not of this project"
    click.echo(f"watching {running[0].folder}{elsewhere}", err=True)
    if running[1:]:
        click.echo(f"also running: {', '.join(str(other.folder) for other in running[1:])}", err=True)
    return running[0]


def batch_to_steer(name: Path | None, number: int | None, results: Path | None, root: Path | None) -> "Batch":
    """The batch that is named, or the only one that runs: in this project, or anywhere."""
    from terminalbench.lab.select import live_batches, of_this_project, refuse_several

    if name is not None or number is not None:
        return one_batch(name, number, results, root).batch
    running = live_batches(results)
    if not running:
        raise UserError("nothing is running", hint="tbench status shows what runs")
    if sum(map(of_this_project, running)) != 1:
        refuse_several(running, "say which with --in")
    return running[0]  # this project's come first


def batches_to_end(
    name: Path | None, number: int | None, results: Path | None, root: Path | None, *, everything: bool
) -> "list[Batch]":
    """The batch that is named; else the only one that runs in the results folder, or the newest when none does.

    The newest may have left something behind. `everything`: all that this user's runs have announced; with a results
    folder those of it, and all others that run there.
    """
    from terminalbench.lab.select import live_batches, refuse_several, results_root
    from terminalbench.live.processes import announced_batches

    if everything and results is None:
        return announced_batches()
    if name is not None or number is not None:
        return [one_batch(name, number, results, root, own=True).batch]
    folder = results_root(results)
    running = live_batches(folder)
    if everything:
        there = [batch for batch in announced_batches() if batch.folder.resolve().is_relative_to(folder)]
        return list({batch.folder.resolve(): batch for batch in (*there, *running)}.values())
    refuse_several(running, "name the one to end, or give --all")
    return running or [one_batch(None, None, results).batch]
