"""`tbench memory learn`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from terminalbench.cli.memory.options import on_memory, roots_of
from terminalbench.cli.options import json_option, results_option
from terminalbench.cli.output import print_json

if TYPE_CHECKING:
    from terminalbench.archivist.store import Store


@click.command("learn")
@results_option
@on_memory(write=True)
@json_option
def command(store: "Store", results: Path | None, as_json: bool) -> None:
    """Learn what lessons are worth from the trials that were shown them, or not, by chance.

    Looks at every batch and every night of the results folder. A trial is counted once, however often this is called. A
    lesson that harms with a probability above 0.9 is retired, and the reason says by which trials.
    """
    from terminalbench.archivist.effects import count_trials
    from terminalbench.archivist.gains import exposed
    from terminalbench.text.numbers import plural

    found = count_trials(store, exposed(roots_of(store, results)).trials)
    if as_json:
        print_json(found)
        return
    for lesson in found.retired:
        click.echo(f"{lesson.id} is retired: {lesson.reason}")
    changed = plural(len(found.changed), "lesson")
    click.echo(f"{plural(found.trials, 'new trial')} counted, what is believed of {changed} has changed")
