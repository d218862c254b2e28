"""Analysing batches: findings, metrics, a comparison and a report as files; and what the judge would cost."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from terminalbench.analytics.judge.request import JudgeAsk
from terminalbench.analytics.judge.request import request_of as judge_request
from terminalbench.analytics.run import AnalysisRequest, AnalysisResult, Progress, default_output, run_analysis
from terminalbench.analytics.selection import Filter, pick
from terminalbench.errors import UserError
from terminalbench.experiments.envfile import variables_of
from terminalbench.lab.arguments import checked, path_of
from terminalbench.lab.select import Named, SelectedBatches, select
from terminalbench.report.build import ReportInput
from terminalbench.report.write import HTML, explained, open_source, remove_report, write_analysed, write_report
from terminalbench.text.progress import tell

if TYPE_CHECKING:
    from terminalbench.analytics.judge.request import CostEstimate


def report(selected: SelectedBatches, output: Path | None = None, *, pictures: bool = False) -> tuple[Path, Path]:
    """Write report.html and comparison_report.md about the newest of the batches, with a trend over the others.

    With `pictures` the charts as well, as files.
    """
    parts = len(selected.batches) + 1
    sources = []
    for place, batch in enumerate(selected.batches):
        tell("writing the report", place, parts)
        sources.append(open_source(batch))
    sources.sort(key=_created)
    tell("writing the report", parts - 1, parts)
    newest = explained(sources[-1], progress=lambda done, of: tell("reading the trajectories", done, of))
    written = write_report(newest, sources[:-1], output, pictures=pictures)
    tell("writing the report", parts, parts)
    return written


def _created(source: ReportInput) -> tuple[str, str]:
    return (source.view.plan.provenance.created_at or "", str(source.batch.folder))


@dataclass(frozen=True)
class Analysis:
    """The findings, and the page to read first. There is no `report` about a sample of trials."""

    result: AnalysisResult
    report: Path | None = None


@checked
def analyze(
    *batches: Named,
    tasks: Sequence[str] = (),
    profiles: Sequence[str] = (),
    compare: tuple[str, str] | None = None,
    output: Path | str | None = None,
    model: str | None = None,
    progress: Progress | None = None,
    root: Path | str | None = None,
) -> Analysis:
    """Find out what each trial did, compare the profiles, and write tables and a report to the batch's analytics.

    Without a batch: the newest of the results folder. `tasks` and `profiles` pick some trials, `compare` is (new, old)
    instead of the declared contrasts, `output` another folder to write to. A judge is asked only when `model` names
    one. `progress` is called with how many trials are done, and of how many.
    """
    selected = select(*batches, root=path_of(root), with_data=True)
    request = request_of(
        selected,
        Filter(tuple(tasks), tuple(profiles)),
        compare=compare,
        output=Path(output) if output is not None else None,
        judge=JudgeAsk(model, contrasts=(compare,) if compare is not None else ()) if model is not None else None,
        progress=progress,
    )
    done = run_request(request)
    if done.result.judge_error is not None:
        raise done.result.judge_error
    return done


def request_of(
    selected: SelectedBatches, wanted: Filter, *, output: Path | None = None, **more: Any
) -> AnalysisRequest:
    """Return what to analyse: the batches, with the analyzers and the `[analysis]` table of their file as it is now."""
    return AnalysisRequest(
        batches=selected.batches,
        wanted=wanted,
        output=output.resolve() if output is not None else None,
        analyzers=tuple(selected.analysis.analyzers) if selected.analysis is not None else (),
        import_root=selected.import_root,
        env_files=selected.env_files,
        analysis=selected.analysis,
        **more,
    )


def run_request(request: AnalysisRequest) -> Analysis:
    """Analyse, and write report.html and comparison_report.md; a sample has none.

    With `judge_only` a report on disk gains what the judge said, if it still answers the same question.
    """
    with variables_of(*request.env_files) if request.judge is not None else nullcontext():
        result = run_analysis(request)
    if request.judge_only:
        stands = result.comparison is not None and (result.output / HTML).is_file()
        if result.judged is None or not stands:
            return Analysis(result)
    elif request.wanted.is_sample:
        remove_report(result.output)
        return Analysis(result)
    return Analysis(result, write_analysed(result.folders, result.views, result.comparison, result.output)[0])


def estimate(request: AnalysisRequest) -> "CostEstimate":
    """Return what the judge would ask and cost. Calls nothing, writes nothing."""
    if request.judge is None:
        raise UserError("no judge model is set", hint="give --model, or set [analysis] judge_model")
    from terminalbench.analytics.judge.run import estimate as estimate_judge

    output = request.output or default_output(request.batches, request.wanted, request.compare)
    return estimate_judge(judge_request(pick(request.batches, request.wanted), request.judge, output))
