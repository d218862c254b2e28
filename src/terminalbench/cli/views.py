"""The batches a command was given, brought into the index and opened."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from terminalbench.errors import UserError
from terminalbench.experiments.batch import latest
from terminalbench.experiments.config import load
from terminalbench.experiments.tables import AnalysisTable
from terminalbench.index.queries import BatchView, view_batch
from terminalbench.index.scan import scan_batch
from terminalbench.lab.select import Target, find_target, of_its_file


@dataclass(frozen=True)
class OpenedViews:
    """Views in the order they were named, and the `[analysis]` table of the experiment file they were named by."""

    views: list[BatchView]
    analysis: AnalysisTable | None = None


def open_views(names: Sequence[Path], results: Path | None, root: Path | None) -> OpenedViews:
    """The views of experiment files (their latest batch with data), batch folders or `slug/n`; else the newest."""
    targets = [_target(name, results, root) for name in names] or [find_target(None, None, results, root)]
    views: dict[Path, BatchView] = {}
    for target in targets:
        folder = target.batch.folder
        if folder in views:
            continue
        scan_batch(target.batch)
        view = view_batch(target.batch)
        if any(view.batch == other.batch for other in views.values()):
            view = msgspec.structs.replace(view, batch=str(folder))
        views[folder] = view
    experiment = next((t.experiment for t in targets if t.experiment is not None), None)
    return OpenedViews(list(views.values()), experiment.analysis if experiment is not None else None)


def _target(name: Path, results: Path | None, root: Path | None) -> Target:
    if name.suffix == ".toml" or name.is_file():
        experiment = load(name, root)
        batch = latest(experiment.results_root, experiment.slug)
        if batch is None:
            raise UserError(f"{experiment.slug} has no batch with data yet", where=str(name), hint=f"tbench run {name}")
        return Target(of_its_file(batch, experiment), experiment)
    return find_target(name, None, results, root)
