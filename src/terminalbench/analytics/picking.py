"""Which trials an analysis is about, and their findings out of the cache."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from terminalbench.analytics.analyzers import Loaded
from terminalbench.analytics.findings_cache import FindingsCache
from terminalbench.analytics.trial_files import TrialFiles
from terminalbench.analytics.views import Filter, Source, check_names, open_source, picked, ran, selected
from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.index.queries import BatchView, CellState, TrialRow
from terminalbench.index.store import open_index
from terminalbench.records import Finding


@dataclass(frozen=True)
class Picked:
    """A batch with the cells that are analysed."""

    source: Source
    view: BatchView
    cells: list[CellState]

    @property
    def trials(self) -> list[TrialRow]:
        """The folders to read; a trial that was held never started."""
        return [cell.row for cell in self.cells if cell.row is not None and ran(cell)]


def pick(batches: Sequence[Batch], wanted: Filter) -> list[Picked]:
    """The trials that are meant, batch by batch; a batch that has none of the wanted tasks and profiles is left out.

    Raises UserError when no trial is left, and for a name that no batch knows.
    """
    opened = [open_source(batch) for batch in batches]
    check_names(opened, wanted)
    where = ", ".join(str(source.batch.folder) for source in opened)
    found = [(source, selected(source, wanted)) for source in opened]
    found = [(source, view) for source, view in found if view.cells or not source.view.cells]
    sources, views = [source for source, _ in found], [view for _, view in found]
    # A limit is over all batches together: sampled as one list, then given back to each.
    everything = [cell for view in views for cell in view.cells]
    kept = {id(cell) for cell in picked(everything, wanted)}
    chosen = [
        Picked(source, view, [cell for cell in view.cells if id(cell) in kept])
        for source, view in zip(sources, views, strict=True)
    ]
    if not any(part.cells for part in chosen):
        how = f"no trial {wanted.only}" if wanted.only and everything else "no trial is left after filtering"
        raise UserError(how, where=where, hint="tbench analyze --list shows the trials")
    if not any(part.trials for part in chosen):
        raise UserError("nothing has run yet", where=where, hint="tbench run, or tbench resume")
    return chosen


def trial_files(source: Source, row: TrialRow) -> TrialFiles:
    """What the analyzers see of a trial."""
    runs = source.batch.superseded if row.superseded else source.batch.runs
    return TrialFiles(
        key=f"{row.job}/{row.name}",
        folder=runs / row.job / row.name,
        batch=source.batch.folder,
        record=row.trial,
        usage=row.usage,
        reason=row.reason,
        agent=row.trial.agent if row.trial is not None else None,
    )


def read_findings(part: Picked, analyzers: Sequence[Loaded]) -> Iterator[tuple[CellState, list[Finding]]]:
    """Each cell with its findings, from the cache; none for a cell that never ran."""
    names = [loaded.name for loaded in analyzers]
    with open_index(part.source.root) as connection:
        cache = FindingsCache(connection, batch_key(part.source))
        for cell in part.cells:
            row = cell.row if ran(cell) else None
            yield cell, cache.read(row.job, row.name, names) if row is not None else []


def analytics_of(batches: Sequence[Batch]) -> Path:
    """Where the tables of whole batches go: where the batch has them, or for several beside the first of them."""
    first = batches[0]
    return first.folder.parent / "analytics" if len(batches) > 1 else first.analytics


def batch_key(source: Source) -> str:
    """What the index calls a batch."""
    return source.batch.folder.relative_to(source.root).as_posix()
