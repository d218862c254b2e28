"""The report of batches, as files."""

from pathlib import Path

from terminalbench.lab.select import Selected
from terminalbench.report.build import Measured
from terminalbench.report.write import open_source, write_report


def report(selected: Selected, output: Path | None = None) -> tuple[Path, Path]:
    """Write report.html and comparison_report.md about the newest of the batches, with a trend over the others."""
    sources = sorted((open_source(batch) for batch in selected.batches), key=_created)
    return write_report(sources[-1], sources[:-1], output)


def _created(source: Measured) -> tuple[str, str]:
    return (source.view.plan.provenance.created_at or "", str(source.batch.folder))
