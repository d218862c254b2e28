"""`tbench memory reflect` and `learn`."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from terminalbench.cli.memory.options import on_memory, roots_of, told
from terminalbench.cli.options import PATH, json_option, results_option
from terminalbench.cli.output import print_json
from terminalbench.errors import EXIT_INCOMPLETE, EXIT_OK

if TYPE_CHECKING:
    from terminalbench.archivist.store import Store


@click.command("reflect")
@click.argument("batch", type=PATH, required=False)
@click.option(
    "--model",
    metavar="M",
    help="Chat model that reads the trajectories; its calls are billed. Default: built-in rules, which cost nothing.",
)
@click.option(
    "--budget-usd",
    type=click.FloatRange(min=0, min_open=True),
    metavar="USD",
    help="Upper limit of what the model may cost: a call that could exceed it is not made.",
)
@click.option(
    "--budget-tokens",
    type=click.IntRange(1000, 200_000),
    default=12_000,
    show_default=True,
    metavar="N",
    help="How much of each trajectory the model sees.",
)
@results_option
@on_memory(write=True)
@json_option
def reflect_command(
    store: "Store",
    batch: Path | None,
    model: str | None,
    budget_usd: float | None,
    budget_tokens: int,
    results: Path | None,
    as_json: bool,
) -> int:
    """Derive at most three lessons from a batch, by built-in rules on its failures or with a chat model.

    BATCH is a folder, slug/n or an experiment; without it, the newest. They pass the same checks as lessons
    that you add. Exit code 3: the model was not called, because that could exceed the budget.
    """
    from terminalbench.archivist.reflection import ReflectionLimits, reflect
    from terminalbench.experiments.envfile import variables_of
    from terminalbench.lab.select import SelectedBatches, find_target
    from terminalbench.llm.model import chat_model
    from terminalbench.text.foreign import flat
    from terminalbench.text.numbers import cost, plural

    target = find_target(batch, None, results, with_data=True)
    with variables_of(*SelectedBatches((target,)).env_files) if model is not None else nullcontext():
        asked = chat_model(model) if model is not None else None
        found = reflect(store, target.batch, asked, limits=ReflectionLimits(budget_tokens, budget_usd))
    code = EXIT_OK if found.stopped is None else EXIT_INCOMPLETE
    if as_json:
        print_json(found)
        return code
    for added in found.added:
        click.echo(told(added))
    for one in found.refused:
        click.echo(f"refused: {flat(one.text, 60)}: {one.why}", err=True)
    lessons = plural(len(found.added), "lesson")
    spent = f", cost {cost(found.cost_usd)}" if found.asked else ""
    click.echo(f"{lessons} from {plural(found.trials, 'measured trial')}{spent}")
    if found.stopped is not None:
        click.echo(f"{model} was not called: {found.stopped}", err=True)
    return code


@click.command("learn")
@results_option
@on_memory(write=True)
@json_option
def learn_command(store: "Store", results: Path | None, as_json: bool) -> None:
    """Estimate what each lesson is worth, from trials that got it or not, as drawn at random.

    Reads every batch and every night of the results folder. A trial counts once, however often you run this. A
    lesson that does harm with a probability above 0.9 is retired, and the recorded reason names the trials.
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
    click.echo(f"{plural(found.trials, 'new trial')} counted; the estimates of {changed} have changed")
