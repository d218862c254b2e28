"""A batch as it is on disk now: its index brought up to date, its trials beside what was planned."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import ProfileRecord
from terminalbench.index.foreign import copies, copies_note, view_jobs
from terminalbench.index.imported import ForeignFile
from terminalbench.index.places import ForeignJobs
from terminalbench.index.queries import BatchView, view_batch
from terminalbench.index.scan import scan_batch
from terminalbench.index.store import open_index


def open_view(batch: Batch, results_root: Path | None = None, known: Sequence[ProfileRecord] = ()) -> BatchView:
    """The state of a batch, or of results that are not ours; `known` are profiles of jobs beside them."""
    if isinstance(batch, ForeignFile):
        return batch.view()
    root = results_root or batch.results_root
    scan_batch(batch, root)
    if not isinstance(batch, ForeignJobs):
        return view_batch(batch, root)
    with open_index(root) as connection:
        return view_jobs(batch, connection, known)


def open_views(batches: Iterable[Batch]) -> list[BatchView]:
    """Several that are looked at together: a treatment of Harbor jobs has one name in all of them.

    A trial that an earlier one holds too is a copy and left out, which a note says. Two batches of one name are called
    by their folders.
    """
    known: dict[str, ProfileRecord] = {}
    seen: set[tuple[str, ...]] = set()
    found: list[BatchView] = []
    for batch in batches:
        view = open_view(batch, known=tuple(known.values()))
        if any(view.batch == other.batch for other in found):
            view = replace(view, batch=str(batch.folder))
        if isinstance(batch, ForeignJobs):
            known |= {record.id: record for record in view.plan.profiles if record.id not in known}
        found.append(_without_copies(view, seen))
    return found


def _without_copies(view: BatchView, seen: set[tuple[str, ...]]) -> BatchView:
    again = copies(view.rows(), seen)
    if not again:
        return view
    keys = {row.key for row in again}
    cells = [cell for cell in view.cells if cell.row is None or cell.row.key not in keys]
    aside = [row for row in view.superseded if row.key not in keys]
    return replace(view, cells=cells, superseded=aside, notes=(*view.notes, *copies_note(again, view.batch)))
