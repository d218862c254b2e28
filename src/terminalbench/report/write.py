"""A report on disk: `report.html` and `comparison_report.md`, beside each other."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from terminalbench.analytics.compare import compare
from terminalbench.analytics.model import Comparison
from terminalbench.analytics.rows import rows_of
from terminalbench.analytics.run import AnalysisResult
from terminalbench.analytics.settings import settings_of
from terminalbench.experiments.batch import Batch
from terminalbench.files import write_text
from terminalbench.index.queries import BatchView, view_batch
from terminalbench.index.results import FINDINGS_FILE, read_findings
from terminalbench.index.scan import ForeignJobs, scan_batch
from terminalbench.records import Finding
from terminalbench.report.build import Measured, build_report
from terminalbench.report.html import render_html
from terminalbench.report.markdown import render_markdown
from terminalbench.report.signals import shown

HTML = "report.html"
MARKDOWN = "comparison_report.md"


@dataclass(frozen=True)
class Source:
    """One batch as a report needs it, with the findings it shows; None when it was never analysed."""

    batch: Batch
    view: BatchView
    comparison: Comparison
    findings: tuple[Finding, ...] | None = None


def open_source(batch: Batch) -> Source:
    """A batch as it is on disk now, compared as its plan declares, with what was found about its trials."""
    scan_batch(batch)
    view = view_batch(batch)
    comparison = compare(rows_of([view]), settings_of([view]))
    return Source(batch, view, comparison, _findings(batch.analytics / FINDINGS_FILE))


def report_analysis(batches: Sequence[Batch], result: AnalysisResult) -> tuple[Path, ...]:
    """Write the report of an analysis beside its tables. Of a sample, or of several batches, there is none."""
    if len(batches) != 1 or result.comparison is None:
        if result.profiles:  # its tables are new: a report of other trials must not stand beside them
            for name in (HTML, MARKDOWN):
                (result.output / name).unlink(missing_ok=True)
        return ()
    findings = _findings(result.output / FINDINGS_FILE)
    return write_report(Source(batches[0], result.views[0], result.comparison, findings), output=result.output)


def write_report(this: Source, others: Sequence[Source] = (), output: Path | None = None) -> tuple[Path, Path]:
    """Write the report of a batch, with a trend over the others, into its analytics folder or `output`."""
    folder = output or this.batch.analytics
    report = build_report(_measured(this, folder), [_measured(other, folder) for other in others])
    page, text = folder / HTML, folder / MARKDOWN
    write_text(page, render_html(report))
    write_text(text, render_markdown(report))
    return page, text


def _findings(path: Path) -> tuple[Finding, ...] | None:
    """What a report shows of the findings in a file, each word kept once: there may be a hundred thousand."""
    if not path.is_file():
        return None
    words: dict[str, str] = {}

    def once(word: str) -> str:
        return words.setdefault(word, word)

    return tuple(
        Finding(once(f.trial), once(f.analyzer), once(f.version), once(f.name), f.value)
        for f in read_findings(path, shown)
    )


def _measured(source: Source, folder: Path) -> Measured:
    relative = os.path.relpath(source.batch.folder.resolve(), folder.resolve())
    href = quote(Path(relative).as_posix(), errors="surrogatepass") + "/"
    return Measured(
        source.view, source.comparison, source.findings, href, foreign=isinstance(source.batch, ForeignJobs)
    )
