"""`tbench memory reflect`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from terminalbench.cli.memory.options import on_memory, told
from terminalbench.cli.options import PATH, json_option, results_option
from terminalbench.cli.output import print_json

if TYPE_CHECKING:
    from terminalbench.archivist.store import Store


@click.command("reflect")
@click.argument("batch", type=PATH, required=False)
@click.option("--model", metavar="M", help="Chat model that reads the trajectories; it costs. Default: our own rules.")
@results_option
@on_memory(write=True)
@json_option
def command(store: "Store", batch: Path | None, model: str | None, results: Path | None, as_json: bool) -> None:
    """Learn from a batch: at most three lessons, from how its trials failed, or by a chat model.

    BATCH is a folder, slug/n or an experiment; without it, the newest. Lessons are checked as those of a person are.
    """
    from terminalbench.archivist.reflection import reflect
    from terminalbench.lab.select import find_target
    from terminalbench.llm.model import chat_model
    from terminalbench.text.foreign import flat
    from terminalbench.text.numbers import plural

    target = find_target(batch, None, results, with_data=True)
    found = reflect(store, target.batch, chat_model(model) if model is not None else None)
    if as_json:
        print_json(found)
        return
    for added in found.added:
        click.echo(told(added))
    for one in found.refused:
        click.echo(f"refused: {flat(one.text, 60)}: {one.why}", err=True)
    lessons = plural(len(found.added), "lesson")
    click.echo(f"{lessons} from {plural(found.trials, 'measured trial')}")
