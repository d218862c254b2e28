"""`tbench trainer run`."""

from pathlib import Path

import click

from terminalbench.cli.options import json_option, root_option
from terminalbench.cli.output import print_json, text_width
from terminalbench.cli.trainer.options import measuring, plan_argument
from terminalbench.errors import EXIT_INCOMPLETE, EXIT_OK


@click.command("run")
@plan_argument
@click.option("--nights", type=click.IntRange(min=1), metavar="N", help="At most so many nights now.")
@click.option("--resume", is_flag=True, help="Go on with a training that was begun.")
@json_option
@root_option
def command(file: Path, nights: int | None, resume: bool, as_json: bool, root: Path | None) -> int:
    """Run the nights of a training plan.

    The plan is fixed before the first trial. Each night has three parts, all ordinary batches: the champion against the
    one before it, a search among variants on train, and the oldest challenger against the champion on dev. kill -9,
    then --resume: no trial with a verdict is run twice, and the same is decided.

    Exit code 0: the training is over; 3: more nights are planned, or no search came to anything; 130: interrupted.
    """
    from textwrap import fill
    from time import time

    from terminalbench.cli.line import StatusLine
    from terminalbench.overnight.training_report import TrainedNight, TrainingStep, step_line
    from terminalbench.text.foreign import printable
    from terminalbench.text.paths import typed
    from terminalbench.trainer.check import idle_looks
    from terminalbench.trainer.journal import NightEntry
    from terminalbench.trainer.lineage import LineageStore
    from terminalbench.trainer.plan import load_plan
    from terminalbench.trainer.run import run_training
    from terminalbench.trainer.story import claim, ledger, spent

    plan = load_plan(file, root)
    if not as_json and (note := idle_looks(plan)) is not None:
        click.echo(fill(f"note: {note}", text_width(), subsequent_indent="  "))

    teller = StatusLine(quiet=as_json, refresh_sec=0.5)

    begun: set[int] = set()

    def stepped(number: int, step: TrainingStep) -> None:
        if not as_json and number not in begun:
            begun.add(number)
            click.echo(f"night {number} of {plan.table.nights} begins")
        if teller.is_time():
            so_far = TrainedNight(training=plan.table.slug, night=number, lines=[], step=step)
            teller.renew(step_line(so_far, time()) or "")

    def told(night: NightEntry) -> None:
        teller.done()
        if as_json:
            return
        said = f"night {night.night} of {plan.table.nights}: champion {night.after.champion}, {spent([night])}"
        click.echo(fill(said, text_width(), subsequent_indent="  "))
        for one in ledger([night]):
            line = printable(f"  {one.part:8} {one.profile}  {one.what}")
            click.echo(fill(line, text_width(), subsequent_indent=" " * 11))

    again = f"tbench trainer run {typed(file)} --resume"
    try:
        with measuring(file, again):
            trained = run_training(plan, nights=nights, resume=resume, told=told, step=stepped)
    finally:
        teller.done()
    last = LineageStore(plan.root).lineage(plan.lineage).crowned[-1]
    if as_json:
        print_json({"nights": trained.nights, "champion": last, "why": trained.why, "simulated": plan.simulated})
    else:
        simulated = " (simulated)" if plan.simulated else ""
        said = f"{trained.why}; champion of {plan.lineage}: {last.id}{simulated}, {claim(last)}"
        click.echo(fill(printable(said), text_width(), subsequent_indent="  "))
        if not trained.complete:
            over = len(trained.nights) >= plan.table.nights
            click.echo("next: mend it, and give the plan another slug" if over else f"next: {again}")
    return EXIT_OK if trained.complete else EXIT_INCOMPLETE
