"""The report of batches, as files."""

from pathlib import Path

from terminalbench.lab.select import SelectedBatches
from terminalbench.report.build import ReportInput
from terminalbench.report.write import explained, open_source, write_report
from terminalbench.text.progress import tell


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
