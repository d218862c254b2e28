"""Results for programs: batches, trials and findings as rows of plain values, and as data frames where installed.

import terminalbench
results = terminalbench.open_results("results")
results.trials().to_polars()
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict, replace

from terminalbench.errors import TbenchError, UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import ProfileRecord
from terminalbench.files import write_bytes
from terminalbench.index.foreign import copies, copies_note, view_jobs
from terminalbench.index.imported import ForeignFile
from terminalbench.index.pages import BatchFilter, Window
from terminalbench.index.pages import find_batches as listed
from terminalbench.index.places import ForeignJobs, PlanFacts, find_batches, is_job
from terminalbench.index.queries import BatchView, CellState, TrialRow, trial_columns, view_batch
from terminalbench.index.scan import scan_all, scan_batch
from terminalbench.index.store import open_index
from terminalbench.json_files import BadLine, each_jsonl, encode_json
from terminalbench.records.trial import Finding, Outcome
from terminalbench.strict import is_folder
from terminalbench.text.numbers import plural

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


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


BATCHES: dict[str, type] = {
    "batch": str, "slug": str, "number": int, "name": str, "created_at": str, "planned": int, "trials": int,
    "passed": int, "failed": int, "not_measured": int, "cost_usd": float, "cost_unknown": int, "simulated": bool,
    "labels": str, "no_model": bool, "budget_usd": float, "over_usd": float,
    "oracle": bool,
}  # fmt: skip
TRIALS: dict[str, type] = {
    "batch": str, "profile": str, "dataset": str, "task": str, "family": str, "attempt": int, "outcome": str,
    "measured": bool, "passed": bool, "superseded": bool, "reward": float, "reason": str, "error_class": str,
    "error_type": str, "agent_status": str, "agent": str, "agent_version": str, "model": str, "job": str, "trial": str,
    "folder": str, "started_at": str, "finished_at": str, "wall_sec": float, "environment_sec": float,
    "agent_setup_sec": float, "agent_sec": float, "verifier_sec": float, "input_tokens": int, "cache_read_tokens": int,
    "cache_write_tokens": int, "output_tokens": int, "tokens": int, "cost_usd": float, "usage_source": str,
    "cost_source": str, "tool_calls": int, "agent_steps": int, "suspect": str, "simulated": bool, "task_digest": str,
    "cli_version": str, "session_model": str, "permission_mode": str, "tools": str, "mcp_state": str,
    "connections": int, "refused": int, "hosts": str,
    "profile_id": str, "policy_id": str, "labels": str,
}  # fmt: skip
FINDINGS: dict[str, type] = {
    "batch": str, "trial": str, "analyzer": str, "version": str, "name": str, "value": str, "number": float,
    "reason": str, "steps": str,
}  # fmt: skip
FINDINGS_FILE = "findings.jsonl"


@dataclass(frozen=True)
class Table:
    """Rows with known columns. None is unknown. Iterate it, or turn it into a frame."""

    columns: Mapping[str, type]
    rows: Sequence[Mapping[str, Any]]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def to_polars(self) -> "polars.DataFrame":
        """A polars frame; needs the extra `dataframes`."""
        library = _library("polars")
        kinds: dict[type, Any] = {
            str: library.String,
            int: library.Int64,
            float: library.Float64,
            bool: library.Boolean,
        }
        return library.DataFrame(self.rows, schema={name: kinds[kind] for name, kind in self.columns.items()})

    def to_pandas(self) -> "pandas.DataFrame":
        """A pandas frame with types that hold unknown values; needs the extra `dataframes`."""
        library = _library("pandas")
        kinds: dict[type, Any] = {str: "string", int: "Int64", float: "Float64", bool: "boolean"}
        data = {
            name: library.array([row[name] for row in self.rows], dtype=kinds[kind])
            for name, kind in self.columns.items()
        }
        return library.DataFrame(data)

    def to_arrow(self) -> "pyarrow.Table":
        """An Arrow table; needs the extra `dataframes`."""
        library = _library("pyarrow")
        kinds: dict[type, Any] = {
            str: library.string(),
            int: library.int64(),
            float: library.float64(),
            bool: library.bool_(),
        }
        schema = library.schema([(name, kinds[kind]) for name, kind in self.columns.items()])
        return library.Table.from_pylist([dict(row) for row in self.rows], schema=schema)


@dataclass(frozen=True)
class Results:
    """A results folder, or one Harbor job. Every call reads the state on disk now, by way of the index."""

    root: Path
    _jobs: tuple[str, ...] = ()
    _open: Callable[[Batch, Path], BatchView] = open_view

    def batches(self) -> Table:
        """One row a batch, newest first, with its counts and cost."""
        scan_all(self.root)
        return Table(BATCHES, list_batches(self.root))

    def trials(self, batch: str | None = None) -> Table:
        """One row a planned trial, those that never ran too, then one a superseded try; of `slug/n` or of all."""
        rows = [row for found in self._batches(batch) for row in trial_records(self._open(found, self.root))]
        return Table(TRIALS, rows)

    def findings(self, batch: str | None = None) -> Table:
        """One row a finding of `tbench analyze`. `value` is its value as text, `number` as a number where it is one."""
        rows: list[dict[str, Any]] = []
        for found in self._batches(batch):
            key = found.folder.relative_to(self.root).as_posix()
            rows += [_finding(key, finding) for finding in read_findings(found) or ()]
        return Table(FINDINGS, rows)

    def _batches(self, key: str | None) -> list[Batch]:
        found = [
            b if b.results_root != b.folder else ForeignJobs(b.folder, self._jobs) for b in find_batches(self.root)
        ]
        found = [batch for batch in found if not self._jobs or isinstance(batch, ForeignJobs)]
        planned = [b for b in found if isinstance(b, ForeignJobs) or os.path.isfile(b.plan_json)]  # noqa: PTH113  False where it is denied
        if key is None:
            return planned
        named = [batch for batch in planned if batch.folder.relative_to(self.root).as_posix() == key]
        if not named:
            raise UserError(f'there is no batch "{key}"', where=str(self.root), hint="tbench list shows the batches")
        return named


def list_batches(root: Path, labels: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """The rows of `Results.batches` from the index as it is; of the batches that have all these labels."""
    with open_index(root) as connection:
        found = listed(connection, BatchFilter(labels=labels or {}), Window(size=None)).items
    return [{name: getattr(batch, name) for name in BATCHES} for batch in found]


def open_results(root: Path | str = "results") -> Results:
    """The results folder at `root`, or the Harbor job."""
    if not isinstance(root, str | Path) or "\0" in str(root):
        raise UserError(f"give the path of the results folder, not {root!r}")
    folder = Path(root).resolve()
    if not is_folder(folder):
        raise UserError("there are no results here", where=str(root))
    return Results(folder.parent, (folder.name,)) if is_job(str(folder)) else Results(folder)


def trial_records(view: BatchView) -> list[dict[str, Any]]:
    """The rows of a batch: one a planned trial, then one a superseded try."""
    facts = PlanFacts.of(view.plan)
    label_of = {(job.profile, task.ref): task.label for job in view.plan.jobs for task in job.tasks}
    planned = [
        _record(view.batch, cell.row, cell)
        | facts.columns(cell.profile, label_of.get((cell.profile, cell.task)), cell.task.id)
        for cell in view.cells
    ]
    aside = [_record(view.batch, row) | facts.columns(row.profile, row.dataset, row.task) for row in view.superseded]
    return planned + aside


def export_index(batch: Batch, view: BatchView) -> None:
    """Write runs/index.json for other programs, unless it is as it would be written.

    One entry a planned trial, then one a superseded try. Paths are relative to the batch folder.
    """
    told: list[tuple[TrialRow | None, Outcome | None]] = [(cell.row, cell.outcome) for cell in view.cells]
    told += [(row, row.trial.outcome if row.trial is not None else None) for row in view.superseded]
    entries = [_entry(record, *one) for record, one in zip(trial_records(view), told, strict=True)]
    document = {"schema_version": 1, "batch": view.batch, "labels": view.plan.labels, "runs": entries}
    data = encode_json(document)
    if not batch.index_json.is_file() or batch.index_json.read_bytes() != data:
        write_bytes(batch.index_json, data)


def export_is_current(batch: Batch) -> bool:
    """True when runs/index.json is younger than plan and events of its batch, and than every folder of a job."""
    try:
        written = batch.index_json.stat().st_mtime_ns
        older = [batch.plan_json, batch.events_jsonl, *batch.runs.glob("*/"), *batch.superseded.glob("*/")]
        return all(path.stat().st_mtime_ns < written for path in older)
    except OSError:
        return False


def _entry(record: Mapping[str, Any], row: TrialRow | None, outcome: Outcome | None) -> dict[str, Any]:
    """One entry of runs/index.json, from the row of `trial_records` and the folder that it tells of."""
    trial = row.trial if row is not None else None
    job_dir = row.folder.rpartition("/")[0] if row is not None else None
    trajectory = trial.trajectory_paths[0] if trial is not None and trial.trajectory_paths else None
    passed = outcome is Outcome.PASSED if outcome is not None and outcome.measured else None
    return {
        "task_id": record["task"],
        "agent_key": record["profile"],
        "profile_id": record["profile_id"],
        "family": record["family"],
        "dataset": record["dataset"],
        "attempt": record["attempt"],
        "outcome": outcome,
        "reason": record["reason"],
        "success": passed,
        "resolved": passed,
        "accuracy": record["reward"],
        "elapsed_sec": record["wall_sec"],
        "cost_usd": record["cost_usd"],
        "job_dir": job_dir,
        "trial_dir": record["folder"],
        "results_json": f"{job_dir}/{trial.result_path}" if trial is not None and trial.result_path else None,
        "trajectory_json": f"{job_dir}/{trajectory}" if trajectory else None,
        **({"superseded": True} if record["superseded"] else {}),
    }


def read_findings(
    batch: Batch, file: Path | None = None, keep: Callable[[Finding], bool] | None = None
) -> tuple[Finding, ...] | None:
    """Return what `tbench analyze` found, by `keep`; None: never analysed. Raises TbenchError for bad lines."""
    path = file or batch.tables / FINDINGS_FILE
    if not path.is_file():
        return None
    kept: list[Finding] = []
    bad: list[BadLine] = []
    for line in each_jsonl(path, Finding):
        if isinstance(line, BadLine):
            bad.append(line)
        elif keep is None or keep(line):
            kept.append(line)
    if bad:
        raise TbenchError(
            f"{plural(len(bad), 'line')} cannot be read; the first is line {bad[0].number}: {bad[0].reason}",
            where=str(path),
            hint="tbench analyze writes the file again",
        )
    return tuple(kept)


def _record(batch: str, row: TrialRow | None, cell: CellState | None = None) -> dict[str, Any]:
    """One row of `TRIALS`; without a cell it is a superseded try."""
    found: dict[str, Any] = trial_columns(row) if row is not None else {}
    found |= {"batch": batch, "superseded": cell is None}
    if row is not None:
        found |= {"profile": row.profile, "folder": row.folder, "tokens": row.usage.total_tokens}
    if row is not None and row.trial is not None:
        trial = row.trial
        found |= {"reason": trial.error_message, "wall_sec": trial.wall_sec, "measured": trial.measured}
    if cell is not None:
        found |= {"profile": cell.profile, "dataset": cell.task.dataset, "task": cell.task.id}
        found |= {"attempt": cell.attempt, "outcome": cell.state, "reason": cell.reason}
        found["measured"] = cell.measured
    found["passed"] = found["outcome"] == "passed" if found.get("measured") else None
    return dict(zip(TRIALS, map(found.get, TRIALS), strict=True))


def _finding(batch: str, finding: Finding) -> dict[str, Any]:
    value = finding.value
    text = None if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    told = {
        "batch": batch,
        "value": text,
        "number": float(value) if isinstance(value, bool | int | float) else None,
        "steps": ",".join(map(str, finding.steps)) or None,
    }
    return dict.fromkeys(FINDINGS) | asdict(finding) | told


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        hint = 'pip install "terminalbench[dataframes]"'
        raise UserError(f"{name} is not installed; install the extra `dataframes`", hint=hint) from error


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
