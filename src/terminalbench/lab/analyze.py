"""Analysing batches: findings, metrics, a comparison and a report as files; and what the judge would cost."""

import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from terminalbench.analytics.compare import compare_views
from terminalbench.analytics.error_groups import UNFINISHED, FailedTrial, failed_trial, failure_causes
from terminalbench.analytics.findings.analyzers import load_analyzers
from terminalbench.analytics.judge.request import JudgeAsk
from terminalbench.analytics.judge.request import request_of as judge_request
from terminalbench.analytics.labels import is_label, read_labels
from terminalbench.analytics.model import Comparison
from terminalbench.analytics.pool import unpooled
from terminalbench.analytics.run import AnalysisRequest, AnalysisResult, Progress, analyse, default_output, run_analysis
from terminalbench.analytics.selection import Filter, pick
from terminalbench.analytics.settings import ComparisonRequest
from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.envfile import variables_of
from terminalbench.files import write_text
from terminalbench.index.queries import BatchView
from terminalbench.index.results import FINDINGS_FILE, read_findings
from terminalbench.lab.arguments import checked, path_of
from terminalbench.lab.select import Named, SelectedBatches, select
from terminalbench.live.processes import resume_places
from terminalbench.live.status import view_now
from terminalbench.records.trial import Finding
from terminalbench.report.build import ReportInput, build_report
from terminalbench.report.documents import render_html, render_markdown
from terminalbench.report.evidence import needed
from terminalbench.report.pictures import FOLDER, write_pictures
from terminalbench.text.screen import tell

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


HTML = "report.html"
MARKDOWN = "comparison_report.md"


def open_source(batch: Batch) -> ReportInput:
    """Return a batch as it is on disk now, compared as its plan declares."""
    view = view_now(batch)
    return ReportInput(batch, view, _compared(batch, view))


def explained(source: ReportInput, folder: Path | None = None, progress: Progress | None = None) -> ReportInput:
    """Return a batch with what is found about its trials, read now where that was not done, and why profiles failed.

    What a judge, a person or an analyzer of one's own said is taken from the findings in `folder`, if there are some.
    """
    try:
        [part] = pick([source.batch], Filter())
    except UserError:  # nothing has run yet
        return source
    shown = {cell.row.key for cell in source.view.cells if cell.row is not None}
    part = replace(part, cells=[cell for cell in part.cells if cell.row is not None and cell.row.key in shown])
    file = None if folder is None else folder / FINDINGS_FILE
    written = read_findings(source.batch, file, keep=needed) or ()
    analyzers = load_analyzers()
    analyse([part], analyzers, progress)
    labels = read_labels(source.batch.analytics)
    people = labels.current()
    found: list[Finding] = []
    failed: list[FailedTrial] = []
    for cell, told in part.findings(analyzers):
        found += filter(needed, told)
        one = failed_trial(part.view.batch, cell, told, people)
        if one is not None and one.failure_class != UNFINISHED:
            failed.append(one)
    own = {loaded.name for loaded in analyzers}
    found += [one for one in written if one.analyzer not in own and not (labels.lines and is_label(one))]
    found += [label.as_finding() for label in people.values()]
    resume = resume_places([source.batch], [source.view]).get(source.view.batch)
    rows = {row.key: row for row in part.trials}
    causes = failure_causes(failed, lambda one: part.files(rows[one.trial]) if one.trial in rows else None)
    return replace(source, findings=tuple(found), causes=tuple(causes), resume=resume)


def _compared(batch: Batch, view: BatchView) -> Comparison:
    return compare_views([view], ComparisonRequest(places=resume_places([batch], [view]), departures=unpooled([batch])))


def write_analysed(
    batches: Sequence[Batch], views: Sequence[BatchView], comparison: Comparison | None, output: Path
) -> tuple[Path, Path]:
    """Write the report of an analysis into its folder: about its newest batch, with a trend over the others.

    `comparison` is that of the analysis, of all its batches together: its verdicts are the report's.
    """
    alone, pooled = (comparison, None) if len(views) == 1 else (None, comparison)
    sources = [
        ReportInput(batch, view, alone or _compared(batch, view)) for batch, view in zip(batches, views, strict=True)
    ]
    sources.sort(key=lambda source: source.view.plan.provenance.created_at or "")
    return write_report(explained(sources[-1], output), sources[:-1], output, pooled)


def remove_report(folder: Path) -> None:
    """Take away the report of an earlier analysis of other trials."""
    for name in (HTML, MARKDOWN):
        (folder / name).unlink(missing_ok=True)


def write_report(
    this: ReportInput,
    others: Sequence[ReportInput] = (),
    output: Path | None = None,
    pooled: Comparison | None = None,
    *,
    pictures: bool = False,
) -> tuple[Path, Path]:
    """Write the report of a batch, with a trend over the others, into its analytics folder or `output`.

    With `pictures` its charts are files beside it, too.
    """
    folder = output or this.batch.tables
    report = build_report(_seen_from(folder, this), [_seen_from(folder, other) for other in others], pooled)
    page, text = folder / HTML, folder / MARKDOWN
    write_text(page, render_html(report))
    write_text(text, render_markdown(report))
    if pictures:
        write_pictures(report, folder / FOLDER)
    return page, text


def _seen_from(folder: Path, measured: ReportInput) -> ReportInput:
    relative = os.path.relpath(measured.batch.folder.resolve(), folder.resolve())
    return replace(measured, href=quote(Path(relative).as_posix(), errors="surrogatepass") + "/")
