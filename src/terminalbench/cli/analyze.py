"""`tbench analyze`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from terminalbench.cli.options import ListCommand, profiles_option, results_option, root_option, tasks_option
from terminalbench.errors import EXIT_INCOMPLETE, EXIT_OK, UserError

if TYPE_CHECKING:
    from terminalbench.analytics.judge.request import JudgeAsk
    from terminalbench.analytics.run import AnalysisRequest, AnalysisResult
    from terminalbench.analytics.selection import Filter, Only
    from terminalbench.cli.analyzing import Teller
    from terminalbench.experiments.batch import Batch
    from terminalbench.experiments.config import Experiment

_NO_MODEL = "no judge model is set: nothing was judged (--model M, or [analysis] judge_model)"
_SET_MODEL = "give --model, or set [analysis] judge_model"


@click.command("analyze", cls=ListCommand)
@click.argument("experiment", type=click.Path(path_type=Path), metavar="[EXPERIMENT.toml|BATCH|JOBS]", required=False)
@click.option("--batch", metavar="N|N,M|all", help="Which batches of the experiment. Default: the latest with data.")
@click.option("--output", "-o", type=click.Path(path_type=Path), metavar="DIR", help="Where to write.")
@tasks_option
@profiles_option
@click.option("--compare", nargs=2, metavar="NEW OLD", help="Compare these two. Default: the declared contrasts.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only N trials, drawn at random.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of --limit.")
@click.option("--succeeded", is_flag=True, help="Only trials that passed.")
@click.option("--failed", is_flag=True, help="Only trials that ran and did not pass.")
@click.option("--list", "only_list", is_flag=True, help="List the trials that would be analysed, and stop.")
@click.option("--no-llm", is_flag=True, help="Ask no model, whatever the file says.")
@click.option("--llm-only", is_flag=True, help="Only ask the judge; leave the tables as they are.")
@click.option("--model", metavar="M", help="Model of the judge. Default: judge_model of the file; without one, none.")
@click.option("--rubric", multiple=True, metavar="NAME|FILE", help="What to judge by. Default: all built-in rubrics.")
@click.option("--judge-budget", type=click.FloatRange(min=0), metavar="USD", help="The most the judge may cost.")
@click.option("--estimate-cost", is_flag=True, help="Say what the judge would cost, and stop. Calls nothing.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors.")
@results_option
@root_option
def command(
    experiment: Path | None, batch: str | None, results: Path | None, root: Path | None, quiet: bool, **chosen: Any
) -> int:
    """Find out what each trial did, compare the profiles, and write tables to the batch's analytics folder.

    Takes an experiment file, a batch folder, or any folder of Harbor jobs; without one, the newest batch. Trials that
    were analysed before are not read again. A model is asked only when one is named. Exit code 3: something could not
    be analysed, and it is said what.
    """
    from terminalbench.analytics.run import run_analysis
    from terminalbench.analytics.selection import pick
    from terminalbench.cli.analyzing import Teller, listing, summary

    target = find_batches_of(experiment, batch, results, root)
    teller = Teller(quiet)
    request = _request(target, chosen, teller)
    if chosen["only_list"]:
        click.echo(listing(pick(target.batches, request.wanted)))
        return EXIT_OK
    if chosen["estimate_cost"]:
        return _estimate(request)
    result = run_analysis(request)
    page = _report(request, result)
    if not quiet:
        if said := summary(result, page):
            click.echo(said)
        if request.judge is None and not chosen["no_llm"]:
            click.echo(_NO_MODEL)
    else:
        for line in result.missing:
            click.echo(f"missing: {line}", err=True)
    if result.judge_error is not None:
        raise result.judge_error
    nothing = request.judge_only and result.judged is not None and not result.judged.judged
    return EXIT_INCOMPLETE if result.incomplete or nothing else EXIT_OK


def _report(request: "AnalysisRequest", result: "AnalysisResult") -> Path | None:
    """Write report.html and comparison_report.md; there is none about a sample.

    With --llm-only one that is there gets what the judge said, if it still answers the same question.
    """
    from terminalbench.report.write import HTML, remove_report, write_analysed

    if request.judge_only:
        stands = result.comparison is not None and (result.output / HTML).is_file()
        if result.judged is None or not stands:
            return None
    elif request.wanted.is_sample:
        remove_report(result.output)
        return None
    return write_analysed(result.folders, result.views, result.comparison, result.output)[0]


def _request(target: "Batches", chosen: dict[str, Any], teller: "Teller") -> "AnalysisRequest":
    from terminalbench.analytics.run import AnalysisRequest

    loaded = target.experiment
    asked = _judge(target, chosen, teller)
    if asked is None and (chosen["llm_only"] or chosen["estimate_cost"]):
        raise UserError("no judge model is set", hint=_SET_MODEL)
    return AnalysisRequest(
        batches=target.batches,
        wanted=_filter(chosen),
        output=chosen["output"].resolve() if chosen["output"] is not None else None,
        compare=chosen["compare"],
        analyzers=tuple(loaded.analysis.analyzers) if loaded is not None else (),
        import_root=target.import_root,
        analysis=loaded.analysis if loaded is not None else None,
        judge=asked,
        judge_only=chosen["llm_only"],
        progress=teller.progress,
    )


def _judge(target: "Batches", chosen: dict[str, Any], teller: "Teller") -> "JudgeAsk | None":
    from terminalbench.analytics.judge.request import JudgeAsk

    if chosen["no_llm"]:
        if chosen["llm_only"] or chosen["model"] or chosen["estimate_cost"] or chosen["rubric"]:
            raise click.UsageError("--no-llm excludes --llm-only, --model, --rubric and --estimate-cost")
        return None
    model = chosen["model"] or target.judge_model()
    if model is None:
        if chosen["rubric"] or chosen["judge_budget"] is not None:
            raise UserError("no judge model is set", hint=_SET_MODEL)
        return None
    pairs = (chosen["compare"],) if chosen["compare"] is not None else ()
    return JudgeAsk(model, chosen["rubric"], chosen["judge_budget"], pairs, teller.judging)


def _estimate(request: "AnalysisRequest") -> int:
    from terminalbench.analytics.judge.output import estimate_lines
    from terminalbench.analytics.judge.request import request_of
    from terminalbench.analytics.judge.run import estimate
    from terminalbench.analytics.run import default_output
    from terminalbench.analytics.selection import pick

    if request.judge is None:
        raise UserError("no judge model is set", hint=_SET_MODEL)
    output = request.output or default_output(request.batches, request.wanted)
    chosen = pick(request.batches, request.wanted)
    click.echo("\n".join(estimate_lines(estimate(request_of(chosen, request.judge, output)))))
    return EXIT_OK


class Batches:
    """The batches a command means, the experiment they were named by, and where its own modules are."""

    def __init__(self, batches: "Sequence[Batch]", experiment: "Experiment | None", import_root: Path) -> None:
        self.batches = tuple(batches)
        self.experiment = experiment
        self.import_root = import_root

    def judge_model(self) -> str | None:
        """The judge of the experiment file as it is now, else of the plan."""
        from terminalbench.errors import TbenchError
        from terminalbench.experiments.plan import Plan
        from terminalbench.files import read_json

        if self.experiment is not None:
            return self.experiment.analysis.judge_model
        try:
            plan: Plan = read_json(self.batches[0].plan_json, Plan)
        except (OSError, TbenchError):  # a folder of Harbor jobs has none; a broken one is reported when it is opened
            return None
        return plan.analysis.judge_model


def find_batches_of(name: Path | None, numbers: str | None, results: Path | None, root: Path | None) -> Batches:
    """The batches that are meant: of an experiment file, a batch folder, a folder of Harbor jobs, or the newest one."""
    from terminalbench.analytics.selection import find_jobs
    from terminalbench.experiments.config import load, project_root
    from terminalbench.lab.select import find_target, of_its_file

    if name is not None and not name.is_dir() and name.suffix == ".toml":
        loaded = load(name, root)
        found = [of_its_file(batch, loaded) for batch in _numbered(loaded, numbers)]
        return Batches(found, loaded, loaded.root)
    if numbers is not None:
        raise UserError("--batch goes with an experiment file", hint="name the batch folder instead")
    listed = name is None or not name.exists()
    single = find_target(name, None, results, root).batch if listed else find_jobs(name)
    return Batches([single], None, project_root(single.folder / "any.toml", root))


def _numbered(experiment: "Experiment", numbers: str | None) -> "list[Batch]":
    from terminalbench.experiments.batch import Batch, batch_numbers, latest, latest_started

    folder, slug = experiment.results_root, experiment.slug
    if numbers is None:
        found = latest(folder, slug) or latest_started(folder, slug)
        if found is None:
            raise UserError(
                f"{slug} has no batch yet", where=str(experiment.file), hint=f"tbench run {experiment.file}"
            )
        return [found]
    there = [n for n in batch_numbers(folder, slug) if (folder / slug / str(n) / "plan.json").is_file()]
    if numbers == "all":
        wanted = there
    else:
        parts = [part.strip() for part in numbers.split(",")]
        if not all(part.isdecimal() for part in parts):
            raise UserError(f'--batch is a number, several with commas, or "all"; not "{numbers}"')
        wanted = list(dict.fromkeys(map(int, parts)))
    missing = [str(number) for number in wanted if number not in there]
    if missing or not wanted:
        known = ", ".join(map(str, there)) or "none"
        what = f"there is no batch {', '.join(missing)} of {slug}" if missing else f"{slug} has no batch yet"
        raise UserError(what, where=str(folder), hint=f"batches: {known}")
    return [Batch(folder / slug / str(number)) for number in wanted]


def _filter(chosen: dict[str, Any]) -> "Filter":
    from terminalbench.analytics.selection import Filter

    if chosen["succeeded"] and chosen["failed"]:
        raise click.UsageError("--succeeded and --failed exclude each other")
    only: Only | None = "succeeded" if chosen["succeeded"] else "failed" if chosen["failed"] else None
    return Filter(chosen["tasks"], chosen["profiles"], only, chosen["limit"], chosen["seed"])
