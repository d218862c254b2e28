"""The output folder of an experiment: one class owns its paths."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.index.places import find_batches

SLUG = "swe-bench-pro"


@dataclass(frozen=True)
class Output:
    """Where everything of one SWE-Bench Pro experiment is.

    <folder>/
      experiment.toml      what is run; written once
      batches/<slug>/<n>/  its batch, and batches/index.db over it: all that a resume reads
      results.jsonl  traces/  artifact_dags/  predictions/   projections
      final_error_analysis_*.md  final_errors_*.json  charts/
    """

    folder: Path

    @property
    def experiment_toml(self) -> Path:
        """What is run."""
        return self.folder / "experiment.toml"

    @property
    def lock(self) -> Path:
        """Held by the process that runs it."""
        return self.folder / ".lock"

    @property
    def results_root(self) -> Path:
        """The results folder that its batches are in."""
        return self.folder / "batches"

    def batches(self) -> list[Batch]:
        """Its batches with a plan, in order."""
        if not self.results_root.is_dir():
            return []
        found = [batch for batch in find_batches(self.results_root) if batch.plan_json.is_file()]
        return sorted(found, key=lambda batch: (batch.folder.parent.name, batch.number))


def batches_of(named: Sequence[str], output: Path | None) -> tuple[list[Batch], Path]:
    """The batches that are named, by output folder or as everywhere else; and where their projections go."""
    from terminalbench.lab.select import find_target

    found: list[Batch] = []
    folders: list[Path] = []
    for name in named:
        own = Output(Path(name)).batches()
        folders += [Path(name)] if own else []
        found += own or [find_target(name).batch]
    if output is None and len(folders) != 1:
        raise UserError("name the folder to write to: --output-dir DIR")
    return found, output or folders[0]
