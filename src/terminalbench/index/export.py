"""`runs/index.json`: the batch's trials for other programs, with paths relative to the batch folder."""

from typing import Any

from terminalbench.experiments.batch import Batch
from terminalbench.files import write_json
from terminalbench.index.queries import BatchView, CellState, TrialRow
from terminalbench.records import Outcome


def export_index(batch: Batch, view: BatchView) -> None:
    """Write runs/index.json: one entry per planned trial, then one per superseded trial."""
    entries = [_entry(cell, cell.row) for cell in view.cells]
    entries += [{**_entry(None, row), "superseded": True} for row in view.superseded]
    write_json(batch.index_json, {"schema_version": 1, "batch": view.batch, "runs": entries})


def _entry(cell: CellState | None, row: TrialRow | None) -> dict[str, Any]:
    trial = row.trial if row is not None else None
    entry: dict[str, Any] = {
        "task_id": cell.task.id if cell else row.task if row else None,
        "agent_key": cell.profile if cell else row.profile if row else None,
        "dataset": cell.task.dataset if cell else row.dataset if row else None,
        "attempt": cell.attempt if cell else None,
        "outcome": cell.outcome if cell else trial.outcome if trial else None,
        "reason": cell.reason if cell else row.reason if row else None,
        "success": None,
        "resolved": None,
        "accuracy": None,
        "elapsed_sec": None,
        "cost_usd": row.usage.cost_usd if row else None,
        "job_dir": None,
        "trial_dir": None,
        "results_json": None,
        "trajectory_json": None,
    }
    if row is not None:
        entry["job_dir"] = row.folder.rpartition("/")[0]
        entry["trial_dir"] = row.folder
    if trial is not None and row is not None:
        measured = trial.outcome in (Outcome.PASSED, Outcome.FAILED)
        passed = trial.outcome is Outcome.PASSED if measured else None
        trajectory = trial.trajectory_paths[0] if trial.trajectory_paths else None
        entry |= {
            "success": passed,
            "resolved": passed,
            "accuracy": trial.reward,
            "elapsed_sec": trial.wall_sec,
            "results_json": f"{entry['job_dir']}/{trial.result_path}" if trial.result_path else None,
            "trajectory_json": f"{entry['job_dir']}/{trajectory}" if trajectory else None,
        }
    return entry
