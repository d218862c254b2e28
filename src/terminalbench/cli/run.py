"""`tbench run` and `tbench resume`."""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from terminalbench.cli.completion import agents, names_of
from terminalbench.cli.options import (
    PATH,
    BatchChoice,
    ListCommand,
    attempts_option,
    json_option,
    junit_option,
    label_option,
    on_batch,
    picks,
    root_option,
    watch_option,
)
from terminalbench.cli.output import print_json
from terminalbench.errors import EXIT_FAILURE, EXIT_GATE, EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK, UserError
from terminalbench.files import write_project_file
from terminalbench.text.foreign import printable
from terminalbench.text.names import from_here, typed

if TYPE_CHECKING:
    from terminalbench.lab.run import FinishedRun
    from terminalbench.lab.select import Target
    from terminalbench.report.run_end import ResumeWords


_STARTED = "{trials} in batch {number} ({place})"
_RESUMED = "continuing batch {number} ({place}): {trials} to run"


@click.command("run", cls=ListCommand)
@click.argument("experiment", type=PATH, metavar="[EXPERIMENT.toml]", required=False)
@picks
@attempts_option
@click.option(
    "--agent",
    metavar="NAME",
    shell_complete=agents,
    help="Without a file: the agent to run; an experiment file is written for it.",
)
@click.option("--model", metavar="M", help="Without a file: its model.")
@click.option(
    "--command",
    "commands",
    multiple=True,
    metavar="LINE",
    help="Without a file: a program as the agent, as in 'python3 agent.py {instruction}'. Repeatable.",
)
@click.option(
    "--vs",
    "versus",
    multiple=True,
    metavar="[AGENT][:MODEL]",
    shell_complete=agents,
    help="Without a file: another agent, or the same with another model, on the same tasks. Repeatable.",
)
@click.option(
    "--container-env",
    metavar="NAME",
    help="Without a file: where trials run. Default: docker if installed, else local.",
)
@label_option
@click.option("--batch", type=click.IntRange(min=0), help="Continue this batch, as tbench resume does, or create it.")
@click.option("--dry-run", is_flag=True, help="Show what would run, as tbench plan does.")
@click.option("--detach", is_flag=True, help="Run in the background, independent of this terminal.")
@click.option("--strict", is_flag=True, help="Refuse to run when a task or profile would be left out.")
@click.option("--fresh-setup", is_flag=True, help="Install agents again instead of using a cached installation.")
@click.option(
    "--gate",
    type=PATH,
    metavar="FILE",
    help="Share budget, rate limits and tbench ctl orders with every batch that names this file.",
)
@junit_option
@watch_option
@json_option
@root_option
def run_command(
    experiment: Path | None,
    tasks: tuple[str, ...],
    profiles: tuple[str, ...],
    attempts: int | None,
    agent: str | None,
    model: str | None,
    commands: tuple[str, ...],
    versus: tuple[str, ...],
    container_env: str | None,
    labels: dict[str, str],
    batch: int | None,
    dry_run: bool,
    detach: bool,
    strict: bool,
    fresh_setup: bool,
    gate: Path | None,
    junit: Path | None,
    watch: bool,
    as_json: bool,
    root: Path | None,
) -> int:
    """Run an experiment: one Harbor job per profile, in a new batch.

    Without a file: tbench run --agent A --model M --tasks 'starter/*' --vs B. Tasks are then DATASET/ID, or globs.

    What cannot run (a task too large for the environment, a profile without its key) is found first and left out
    with its reason; the rest runs. Exit code 0: every planned trial was measured, passed or failed; 3: some
    were not; 100: all were, and a budget is exceeded; 130: interrupted. In CI, tbench compare --fail-if worse
    detects a proven loss.
    """
    alone = {"--agent": agent, "--model": model, "--command": commands, "--vs": versus}
    alone["--container-env"] = container_env
    draft = None
    if experiment is None:
        from terminalbench.experiments.adhoc import AdHoc, draft_ad_hoc

        asked = AdHoc(agent, model, tasks, versus, attempts, container_env, commands)
        draft = draft_ad_hoc(asked, Path.cwd(), root)
        experiment, tasks = draft.experiment.file, ()
    elif given := [name for name, value in alone.items() if value]:
        raise UserError(f"{given[0]} works only without an experiment file; {experiment} already says what to run")
    if detach and not dry_run:
        if watch:
            hint = "start it with --detach, then follow it with tbench watch"
            raise UserError("--detach and --watch cannot be combined", hint=hint)
        return _detach()
    from terminalbench.experiments.config import load

    loaded = draft.experiment if draft is not None else load(experiment, root)
    if dry_run:
        from terminalbench.cli.plan import show_plan
        from terminalbench.experiments.planner import Selection

        return show_plan(loaded, Selection(tasks, profiles, labels, attempts), batch, as_json=as_json)
    if batch is not None and (loaded.results_root / loaded.slug / str(batch) / "plan.json").is_file():
        from terminalbench.cli.options import one_batch

        if attempts or labels or gate:
            what = f"batch {batch} continues as it was planned: --attempts, --label and --gate cannot change it"
            raise UserError(what, hint="tbench resume --attempts adds attempts")
        where = one_batch(BatchChoice(experiment, batch, root=root))
        picked = {"tasks": tasks, "profiles": profiles}
        return resume_batch(where, as_json=as_json, watch=watch, junit=junit, strict=strict, **picked)
    from terminalbench.lab.run import run

    picked = {"tasks": tasks, "profiles": profiles, "attempts": attempts, "labels": labels, "number": batch}
    if fresh_setup:
        loaded = replace(loaded, run=replace(loaded.run, fresh_setup=True))
    work = partial(run, loaded, **picked, strict=strict, gate=gate)
    first = "checking tasks, profiles and environment ..."
    with draft.written() if draft is not None else nullcontext():
        code = _told(work, first, _STARTED, as_json=as_json, watch=watch, junit=junit)
    if draft is not None:
        click.echo(f"experiment: {from_here(experiment)}", err=True)
    return code


def resume_batch(target: "Target", *, as_json: bool, watch: bool, junit: Path | None = None, **wanted: Any) -> int:
    """Resume a batch and show what became of it."""
    from terminalbench.lab.resume import resume

    work = partial(resume, target, **wanted)
    return _told(work, "looking at existing results ...", _RESUMED, as_json=as_json, watch=watch, junit=junit)


def _told(
    work: "Callable[..., FinishedRun]", first: str, doing: str, *, as_json: bool, watch: bool, junit: Path | None
) -> int:
    """Do what runs a batch, with a word about how it goes and how it ended."""
    from terminalbench.cli.progress import RunTeller

    teller = RunTeller(quiet=as_json, watch=watch)
    teller.say(first)
    try:
        with teller:
            ended = work(listener=teller.listener(doing))
        teller.done()
        if junit is not None:
            from terminalbench.index.results import trial_records
            from terminalbench.report.export import junit_xml

            records = trial_records(ended.view)
            write_project_file(junit, junit_xml(ended.view.batch, records, ended.batch.results_root).decode())
        return show_end(ended, as_json=as_json, watched=watch)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("finished trials are kept" if teller.begun else "nothing was started") from None


def show_end(ended: "FinishedRun", *, as_json: bool, watched: bool, ways: "ResumeWords | None" = None) -> int:
    """Print what a person or a machine wants to know of a batch that has run; its exit code.

    `ways` are the words for how to go on with it, where that is another command than `tbench resume`.
    """
    from terminalbench.report.run_end import end_document, next_steps
    from terminalbench.report.text import summary

    view, interrupted = ended.view, ended.interrupted
    for problem in (*ended.problems, *(ended.over_budget if as_json else ())):
        click.echo(printable(problem), err=True)
    if as_json:
        document = end_document(view, interrupted=interrupted)
        document |= {"over_budget": ended.over_budget} if ended.over_budget else {}
        print_json({"kind": "summary", **document} if watched else document, in_line=watched)
    else:
        click.echo(summary(view), nl=False)
        place = typed(ended.batch.folder)
        results = from_here(ended.batch.results_root)
        results = "" if results == "results" else quote(results)
        click.echo(f"\nbatch {view.plan.batch}: {printable(from_here(ended.batch.folder))}")
        how = {"interrupted": interrupted, "nothing_ran": ended.nothing_ran, "gate_stopped": ended.gate_stopped}
        for line in (*ended.over_budget, *next_steps(view, place, ways=ways, **how)):
            click.echo(line)
        click.echo(f"which profile is better, and how certain that is: tbench compare {place}")
        click.echo(f"its trials: tbench list {place}")
        click.echo(f"what each trial did: tbench analyze {place}")
        click.echo(f"results in a browser: {f'tbench view {results}'.strip()}")
    if interrupted:
        return EXIT_INTERRUPTED
    if ended.complete:
        return EXIT_GATE if ended.over_budget else EXIT_OK
    return EXIT_INCOMPLETE if ended.measured else EXIT_FAILURE


def _detach() -> int:
    """Start this very command without --detach, and say where it is; its exit code when it was refused."""
    from terminalbench.lab.run import detach

    started = detach([argument for argument in sys.argv[1:] if argument != "--detach"])
    if started.code is not None:
        click.echo(started.log.read_text(errors="replace"), nl=False, err=started.code != EXIT_OK)
        return started.code
    if started.batch is None:
        click.echo(f"still preparing: pid {started.pid}, log: {started.log}")
        return EXIT_OK
    click.echo(f"running in the background: pid {started.pid}, batch {started.batch.folder}\nlog: {started.log}")
    click.echo("tbench status shows its progress, tbench kill ends it")
    return EXIT_OK


@click.command("resume", cls=ListCommand)
@click.option("--attempts", type=click.IntRange(min=1), help="Add attempts until each task has this many.")
@click.option(
    "--retry-errors",
    is_flag=False,
    flag_value="all",
    metavar="[CLASS]",
    help="Run errored trials again: every error that is the bench's fault, or one class of errors. Errors that a "
    "profile causes (agent_crash, ...) are retried only when you name their class, and the first verdict still counts.",
)
@click.option(
    "--profiles",
    multiple=True,
    metavar="KEY...",
    shell_complete=names_of("profiles"),
    help="Run only what is missing of these profiles, and leave the others as they are. Give the batch before this "
    "option.",
)
@click.option(
    "--top-up",
    is_flag=True,
    help="Add attempts where profiles disagree or are unstable, by the [top_up] rule of the plan.",
)
@click.option(
    "--accept-changed",
    is_flag=True,
    help="Continue although code, skills or tasks have changed since the plan; compare reports the change as a "
    "departure.",
)
@junit_option
@watch_option
@json_option
@on_batch
def resume_command(where: BatchChoice, as_json: bool, watch: bool, **wanted: Any) -> int:
    """Continue a batch: finished trials stay, missing ones run.

    An experiment file that has gained attempts, tasks or profiles adds them to the batch; one that changed otherwise
    is refused. Without a target: the newest batch of the results folder.
    """
    from terminalbench.cli.options import one_batch

    return resume_batch(one_batch(where), as_json=as_json, watch=watch, **wanted)
