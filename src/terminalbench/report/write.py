"""A report on disk: `report.html` and `comparison_report.md`, beside each other."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from terminalbench.analytics.compare import compare_views
from terminalbench.analytics.model import Comparison
from terminalbench.analytics.pool import unpooled
from terminalbench.analytics.settings import ComparisonRequest
from terminalbench.experiments.batch import Batch
from terminalbench.files import write_text
from terminalbench.index.queries import BatchView
from terminalbench.index.results import FINDINGS_FILE, read_findings
from terminalbench.live.processes import resume_places
from terminalbench.live.status import view_now
from terminalbench.report.build import ReportInput, build_report
from terminalbench.report.evidence import needed
from terminalbench.report.html import render_html
from terminalbench.report.markdown import render_markdown

HTML = "report.html"
MARKDOWN = "comparison_report.md"


def open_source(batch: Batch) -> ReportInput:
    """A batch as it is on disk now, compared as its plan declares, with what was found about its trials."""
    view = view_now(batch)
    return ReportInput(batch, view, _compared(batch, view), read_findings(batch, keep=needed))


def _compared(batch: Batch, view: BatchView) -> Comparison:
    return compare_views([view], ComparisonRequest(places=resume_places([batch], [view]), departures=unpooled([batch])))


def write_analysed(
    batches: Sequence[Batch], views: Sequence[BatchView], comparison: Comparison | None, output: Path
) -> tuple[Path, Path]:
    """Write the report of an analysis into its folder: about its newest batch, with a trend over the others.

    `comparison` is that of the analysis, of all its batches together: its verdicts are the report's.
    """
    found = read_findings(batches[0], output / FINDINGS_FILE, keep=needed)
    alone, pooled = (comparison, None) if len(views) == 1 else (None, comparison)
    sources = [
        ReportInput(batch, view, alone or _compared(batch, view), found)
        for batch, view in zip(batches, views, strict=True)
    ]
    sources.sort(key=lambda source: source.view.plan.provenance.created_at or "")
    return write_report(sources[-1], sources[:-1], output, pooled)


def remove_report(folder: Path) -> None:
    """Take away the report of an earlier analysis of other trials."""
    for name in (HTML, MARKDOWN):
        (folder / name).unlink(missing_ok=True)


def write_report(
    this: ReportInput, others: Sequence[ReportInput] = (), output: Path | None = None, pooled: Comparison | None = None
) -> tuple[Path, Path]:
    """Write the report of a batch, with a trend over the others, into its analytics folder or `output`."""
    folder = output or this.batch.tables
    report = build_report(_seen_from(folder, this), [_seen_from(folder, other) for other in others], pooled)
    page, text = folder / HTML, folder / MARKDOWN
    write_text(page, render_html(report))
    write_text(text, render_markdown(report))
    return page, text


def _seen_from(folder: Path, measured: ReportInput) -> ReportInput:
    relative = os.path.relpath(measured.batch.folder.resolve(), folder.resolve())
    return replace(measured, href=quote(Path(relative).as_posix(), errors="surrogatepass") + "/")
