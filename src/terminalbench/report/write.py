"""A report on disk: `report.html` and `comparison_report.md`, beside each other."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from terminalbench.analytics.compare import compare_views
from terminalbench.analytics.error_groups import UNFINISHED, FailedTrial, failed_trial, failure_causes
from terminalbench.analytics.findings.analyzers import load_analyzers
from terminalbench.analytics.labels import is_label, read_labels
from terminalbench.analytics.model import Comparison
from terminalbench.analytics.pool import unpooled
from terminalbench.analytics.run import Progress, analyse
from terminalbench.analytics.selection import Filter, pick
from terminalbench.analytics.settings import ComparisonRequest
from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.files import write_text
from terminalbench.index.queries import BatchView
from terminalbench.index.results import FINDINGS_FILE, read_findings
from terminalbench.live.processes import resume_places
from terminalbench.live.status import view_now
from terminalbench.records.trial import Finding
from terminalbench.report.build import ReportInput, build_report
from terminalbench.report.evidence import needed
from terminalbench.report.html import render_html
from terminalbench.report.markdown import render_markdown
from terminalbench.report.pictures import FOLDER, write_pictures

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
