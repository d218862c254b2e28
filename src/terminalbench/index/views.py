"""A batch as it is on disk now: its index brought up to date, its trials beside what was planned."""

from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from terminalbench.experiments.batch import Batch
from terminalbench.index.foreign import copies, copies_note, view_jobs
from terminalbench.index.places import ForeignJobs
from terminalbench.index.queries import BatchView, view_batch
from terminalbench.index.scan import scan_batch
from terminalbench.index.store import open_index


def open_view(batch: Batch, results_root: Path | None = None) -> BatchView:
    """The state of a batch, or of Harbor jobs that are not ours."""
    root = results_root or batch.results_root
    scan_batch(batch, root)
    if not isinstance(batch, ForeignJobs):
        return view_batch(batch, root)
    with open_index(root) as connection:
        return view_jobs(batch, connection)


def distinct(views: Iterable[BatchView]) -> list[BatchView]:
    """The views without trials that an earlier one has too: a folder and its copy count once, and a note says so."""
    seen: set[tuple[str, ...]] = set()
    found = []
    for view in views:
        again = copies(view.rows(), seen)
        if again:
            keys = {row.key for row in again}
            cells = [cell for cell in view.cells if cell.row is None or cell.row.key not in keys]
            aside = [row for row in view.superseded if row.key not in keys]
            notes = (*view.notes, *copies_note(again, view.batch))
            view = replace(view, cells=cells, superseded=aside, notes=notes)
        found.append(view)
    return found
