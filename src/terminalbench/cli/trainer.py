"""`tbench trainer`."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from itertools import pairwise
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any

import click

from terminalbench.cli.commands import group
from terminalbench.cli.gym import command as gym_command
from terminalbench.cli.options import PATH, json_option, root_option
from terminalbench.cli.output import print_json, say
from terminalbench.errors import EXIT_INCOMPLETE, EXIT_OK, Interrupted, UserError
from terminalbench.experiments.project import marked_root
from terminalbench.files import write_project_file, write_text
from terminalbench.locks import living_owner
from terminalbench.text.foreign import printable
from terminalbench.text.names import typed
from terminalbench.text.numbers import plural

if TYPE_CHECKING:
    from terminalbench.trainer.plan import TrainingPlan
    from terminalbench.trainer.training import Training


__all__ = ["command", "gym_command"]


@group("trainer", __name__)
def command() -> None:
    """Train a profile by a plan: variants are tried at night, and one that is proven better becomes champion."""


plan_argument: Any = click.argument("file", type=PATH, metavar="PLAN.toml")
reason_option: Any = click.option("--reason", required=True, metavar="TEXT", help="Reason, recorded in the lineage.")


def on_training(command: Callable[..., int | None]) -> Any:
    """The argument PLAN.toml and `--root` become `training`."""

    @wraps(command)
    def called(file: Path, root: Path | None, **rest: Any) -> int | None:
        from terminalbench.trainer.training import open_training

        return command(training=open_training(file, root), **rest)

    return plan_argument(root_option(called))


@contextmanager
def measuring(again: str) -> Generator[None]:
    """Around what runs trials of a training: who interrupts it is told the command that goes on."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted("interrupted; finished work is kept", hint=f"{again} continues it") from None


def crown_by_hand(training: "Training", profile: str, reason: str) -> None:
    """Make a profile champion by a person's word, and say so."""
    from terminalbench.trainer.journal import training_lock
    from terminalbench.trainer.lineage import ChampionReason

    if not reason.strip():
        raise UserError("making a champion by hand needs a reason", where="--reason", hint="it is recorded")
    made = training.store.crown(training.lineage_name, profile, ChampionReason.BY_HAND, reason=reason.strip())
    click.echo(f"champion of {training.lineage_name}: {made.id} (before: {made.before})")
    if (owner := living_owner(training_lock(training.folder))) is not None:
        say(f"it takes effect with the next night: the current night (pid {owner.pid}) continues with {made.before}")


@click.command("init")
@click.argument(
    "file", type=PATH, default=Path("experiments/training-quickstart.toml"), metavar="[PLAN.toml]", required=False
)
def init_command(file: Path) -> None:
    """Write a training plan to start from. It runs as it is: no Docker, no key, and a simulated model.

    Default: experiments/training-quickstart.toml. docs/tbench/training.md goes through it.
    """
    from importlib.resources import files

    from terminalbench.experiments.scaffold import project_files
    from terminalbench.trainer.check import check_plan

    if file.exists():
        raise UserError("exists already", where=str(file), hint="name another file")
    folder = Path() if not file.is_absolute() else file.parent
    text = files("terminalbench.trainer").joinpath("quickstart.toml").read_text(encoding="utf-8")
    for path, held in {**project_files(folder, marked_root(folder.resolve())), file: text}.items():
        write_project_file(path, held)
        click.echo(f"written: {path}")
    _show_forecast(check_plan(file))
    click.echo(f"next: tbench trainer run {typed(file)}")


@click.command("plan")
@plan_argument
@json_option
@root_option
def plan_command(file: Path, as_json: bool, root: Path | None) -> None:
    """Show what a training plan would do, and the nights, trials and dollars needed to prove gains of 5,
    10 and 20 points.

    Nothing is run or written. A plan that can never decide anything is refused, and the message says what to
    change.
    """
    from terminalbench.trainer.check import check_plan, forecasts, trial_price

    plan = check_plan(file, root)
    if as_json:
        usd, source = trial_price(plan)
        parts = {"train": len(plan.split.train), "dev": len(plan.split.dev), "holdout": plan.split.held_out}
        told = {"plan": plan.table.slug, "tasks": parts, "gains": [*forecasts(plan)]}
        print_json({**told, "trial_usd": usd, "price": source})
        return
    budget, gate = plan.table.budget, plan.table.gate
    tasks = f"{len(plan.split.train)} train, {plural(len(plan.split.dev), 'dev task')}"
    each = f"{budget.trials} trials each, {plural(gate.looks, 'look')}, {plural(plan.challengers, 'challenger')}"
    _show_forecast(plan, f"{plan.table.slug}: {plural(plan.table.nights, 'night')} of {each}; {tasks}")


def _show_forecast(plan: "TrainingPlan", *before: str) -> None:
    """Show what gains take by a plan, and which of its looks decide nothing, after some lines."""
    from terminalbench.trainer.check import forecast_lines, idle_looks

    note = idle_looks(plan)
    say(*before, *forecast_lines(plan), *([f"note: {note}"] if note is not None else []))


@click.command("run")
@plan_argument
@click.option("--nights", type=click.IntRange(min=1), metavar="N", help="Run at most N nights.")
@click.option("--resume", is_flag=True, help="Continue a training that has begun.")
@json_option
@root_option
def run_command(file: Path, nights: int | None, resume: bool, as_json: bool, root: Path | None) -> int:
    """Run the nights of a training plan.

    The plan is fixed before the first trial. Each night has three parts, all ordinary batches: the champion
    against the one before it, a search among variants on train, and the oldest challenger against the champion
    on dev. After kill -9, --resume continues: no trial with a verdict runs twice, and the decisions are the
    same.

    Exit code 0: the training is over; 3: more nights are planned, or no search came to anything; 130: interrupted.
    """
    from terminalbench.cli.output import StatusLine
    from terminalbench.overnight.summary_model import TrainedNight, TrainingStep, step_line
    from terminalbench.trainer.journal import NightEntry
    from terminalbench.trainer.lineage import LineageStore
    from terminalbench.trainer.plan import load_plan
    from terminalbench.trainer.run import run_training
    from terminalbench.trainer.training import called, claim, ledger, spent

    plan = load_plan(file, root)
    if not as_json and not resume:
        _show_forecast(plan)

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
        say(f"night {night.night} of {plan.table.nights}: champion {night.after.champion}, {spent([night])}")
        say(*(f"  {one.part:8} {one.profile}  {one.what}" for one in ledger([night])))

    again = f"tbench trainer run {typed(file)} --resume"
    try:
        with measuring(again):
            trained = run_training(plan, nights=nights, resume=resume, told=told, step=stepped)
    finally:
        teller.done()
    lineage = LineageStore(plan.root).lineage(plan.lineage)
    last = lineage.crowned[-1]
    if as_json:
        print_json({"nights": trained.nights, "champion": last, "why": trained.why, "simulated": plan.simulated})
    else:
        simulated = " (simulated)" if plan.simulated else ""
        champion = f"champion of {plan.lineage}: {called(lineage, last.id)}{simulated}"
        say(f"{trained.why}; {champion}, {claim(last, lineage)}")
        if not trained.complete:
            over = len(trained.nights) >= plan.table.nights
            click.echo("next: fix the plan, and give it another slug" if over else f"next: {again}")
    return EXIT_OK if trained.complete else EXIT_INCOMPLETE


@click.command("holdout")
@plan_argument
@click.option("--reason", required=True, metavar="TEXT", help="Reason for the look, recorded with it.")
@json_option
@root_option
def holdout_command(file: Path, reason: str, as_json: bool, root: Path | None) -> int:
    """Measure the champion against the profile that the training started with, on the held-out tasks.

    The look is recorded with its reason, and counted, before the first trial runs. It decides nothing:
    promotion and rollback go by dev. After a kill, run it again: it continues the same look.

    Exit code 0: measured; 3: no held-out task was measured with both; 130: interrupted.
    """
    from terminalbench.trainer.plan import load_plan
    from terminalbench.trainer.run import measure_holdout
    from terminalbench.trainer.training import open_training, sealed_line

    training = open_training(file, root)
    if training.declared is None:
        what = "has no champion to measure, because the training has not started"
        raise UserError(what, where=str(file), hint=training.run_command)
    with measuring(f"tbench trainer holdout {typed(file)} --reason ..."):
        found = measure_holdout(load_plan(file, root), reason)
    if as_json:
        print_json({"holdout": found, "simulated": training.simulated})
    else:
        say(sealed_line(found) + (" (simulated)" if training.simulated else ""))
    measured = found.verdict is not None and found.verdict.difference is not None
    return EXIT_OK if measured else EXIT_INCOMPLETE


@click.command("status")
@on_training
@json_option
def status_command(training: "Training", as_json: bool) -> None:
    """Show the state of a training: nights, champion, challenger, evidence so far."""
    from terminalbench.trainer.training import called, claim, sealed_line, spent, standing

    lineage, nights = training.lineage, training.nights
    last = lineage.crowned[-1] if lineage.crowned else None
    if as_json:
        after = nights[-1].after if nights else None
        counts = {"nights": len(nights), "planned": training.planned}
        now = {"champion": last, "simulated": training.simulated, "declared": training.declared}
        print_json({"plan": training.slug, **counts, "state": after, **now, "now": training.under_way})
        return
    simulated = " (simulated)" if training.simulated else ""
    lines = [f"{training.slug}: {standing(nights, training.planned, training.lineage)}{simulated}"]
    if training.declared is None:
        lines.append(f"not started: nothing is declared or measured yet; {training.run_command}")
    else:
        lines.append(f"spent: {spent(nights, training.holdout)}")
    if training.under_way is not None:
        lines.append(f"now: {training.under_way}")
    if last is not None:
        lines.append(f"champion: {called(training.lineage, last.id)}, {claim(last, training.lineage)}")
    judged = [night.confirm for night in nights if night.confirm is not None]
    if judged and judged[-1].verdict is not None:
        lines.append(f"last verdict: {called(training.lineage, judged[-1].new)}: {judged[-1].verdict.reason}")
    lines += [f"holdout: {sealed_line(one)}" for one in training.holdout]
    say(*lines)


@click.command("history")
@on_training
@json_option
def history_command(training: "Training", as_json: bool) -> None:
    """Show every comparison of a training, including rejected and undecided ones, and every change of champion."""
    from terminalbench.trainer.training import called, claim, ledger

    lineage = training.lineage
    if as_json:
        print_json({"nights": training.nights, "champions": lineage.crowned})
        return
    compared = ledger(training.nights)
    say(*(f"{one.night:3}  {one.part:8} {called(lineage, one.profile)}  {one.what}" for one in compared))
    say(*(f"{one.time[:16]}  {called(lineage, one.id)}  {claim(one, lineage)}" for one in lineage.crowned))
    if not training.nights:
        click.echo(f"no night has finished yet: {training.run_command}")


@click.command("diff")
@on_training
@click.argument("profile", required=False)
def diff_command(training: "Training", profile: str | None) -> None:
    """Show how a profile differs from its parent, and so on back to the first. Default: the champion."""
    from terminalbench.experiments.profile_changes import differences

    lineage = training.lineage
    if lineage.champion is None:
        raise UserError("has no champion yet", where=training.lineage_name, hint=training.run_command)
    line = lineage.line(lineage.find(profile) if profile is not None else lineage.champion)
    for one, parent in pairwise(line):
        say(f"{one.id} of {parent.id}: {one.reason} ({one.source})")
        for found in differences(parent.content, one.content):
            click.echo(f"  {printable(found.aspect)}")
            for text in found.lines():
                click.echo(f"    {printable(text)}")
    say(f"{line[-1].id}: {line[-1].reason} ({line[-1].source})")


@click.command("report")
@on_training
@click.option("-o", "--output", type=PATH, metavar="FILE", help="Write it here, not to standard output.")
def report_command(training: "Training", output: Path | None) -> None:
    """Write the report of a training in Markdown: what was tried, kept and rejected, the cost, and the claimed gain."""
    from terminalbench.trainer.training import report

    text = report(
        training.lineage, training.slug, training.planned, training.nights, training.holdout, training.outside
    )
    if training.declared is None:
        text += f"\nNot begun: `{training.run_command}`\n"
    if output is not None:
        write_text(output, text)
    else:
        say(*text.splitlines())


@click.command("promote")
@on_training
@click.argument("profile")
@reason_option
def promote_command(training: "Training", profile: str, reason: str) -> None:
    """Make a profile of the lineage its champion by hand. It is recorded as your decision, and claims no gain."""
    crown_by_hand(training, training.lineage.find(profile).id, reason)


@click.command("rollback")
@on_training
@reason_option
def rollback_command(training: "Training", reason: str) -> None:
    """Restore the previous champion by hand; called again, the champion before that."""
    before = training.lineage.earlier
    if before is None:
        raise UserError("there is no earlier champion to restore", where=training.lineage_name)
    crown_by_hand(training, before.id, reason)
