"""What SWE-Bench Pro users look for, made from batches: results.jsonl, traces/, artifact_dags/, predictions/.

Nothing here is read by a run or a resume. A projection that was deleted comes back byte for byte.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from terminalbench.analytics.rows import rows_of
from terminalbench.experiments.batch import Batch
from terminalbench.files import is_plain, read_plain, write_bytes
from terminalbench.index.queries import BatchView, CellState
from terminalbench.index.views import open_view
from terminalbench.json_files import encode_json, encode_line
from terminalbench.records.trial import Outcome
from terminalbench.records.values import total
from terminalbench.swebench_pro import dag, dag_view
from terminalbench.swebench_pro.rows import RESULTS, ResultRow, Standing, file_name
from terminalbench.swebench_pro.runs import DAGS, PREDICTIONS, TRACE, TRACES
from terminalbench.workflow.history import History, fold, read_events
from terminalbench.workflow.model import Artifact
from terminalbench.workflow.trace import patch_file, read_artifact, trace_file

PREFIX = "terminalbench"
_TRACE_LIMIT, _PATCH_LIMIT = 256 << 20, 64 << 20
_OTHER_PATCHES = ("artifacts/logs/artifacts/model.patch", "artifacts/model.patch")
"""Where the task of an instance leaves the diff of an agent that writes none itself."""


@dataclass(frozen=True)
class Source:
    """One run: its row, its trace as bytes, its history and artifacts; an agent without a workflow has none."""

    row: ResultRow
    trace: bytes | None = None
    history: History | None = None
    artifacts: Mapping[str, Artifact] | None = None


@dataclass(frozen=True)
class Projected:
    """What was written."""

    results: Path
    rows: int
    traces: int
    predictions: tuple[Path, ...]


def project(batches: Sequence[Batch], output: Path) -> Projected:
    """Write every projection of batches into a folder. Of a run that two batches hold, the later batch's counts."""
    found: dict[tuple[str, str, int], Source] = {}
    for batch in batches:
        for source in sources(batch):
            found[source.row.key] = source
    return write(list(found.values()), output)


def sources(batch: Batch) -> Iterable[Source]:
    """Every planned run of a batch, as its index and its trial folders tell it now."""
    view = open_view(batch)
    measured = rows_of([view])
    ids = {job.profile: job.profile_id for job in view.plan.jobs}
    for cell, row in zip(view.cells, measured, strict=True):
        folder = batch.folder / cell.row.folder if cell.row is not None else None
        trace = read_plain(trace_file(folder), _TRACE_LIMIT) if folder is not None else None
        history = fold(*read_events(trace)) if trace is not None else None
        made = _row(view, cell, history, folder)
        made = msgspec.structs.replace(
            made,
            profile_id=ids.get(cell.profile),
            superseded=row.superseded,
            spent_usd=row.cost_usd,
            spent_tokens=row.tokens,
        )
        artifacts = _artifacts(folder, history) if folder is not None and history is not None else None
        yield Source(made, trace, history, artifacts)


def _row(view: BatchView, cell: CellState, history: History | None, folder: Path | None) -> ResultRow:
    trial = cell.row.trial if cell.row is not None else None
    phases = trial.phases if trial is not None else None
    patch, odd = _patch(folder)
    told = history or History()
    errored = cell.outcome in (Outcome.ERRORED, Outcome.CANCELLED, Outcome.TIMED_OUT, Outcome.NOT_RUN)
    usage = cell.row.usage if cell.row is not None else None
    tokens = told.tokens_by_step()
    counted = usage.total_tokens if usage is not None else None
    return ResultRow(
        instance_id=cell.task.id,
        arm=cell.profile,
        attempt=cell.attempt,
        patch_content=patch,
        total_tokens=counted if counted is not None else total(tokens.values()),
        per_step_tokens=tokens,
        per_step_cost_usd=told.cost_by_step(),
        wall_time_seconds=_rounded(trial.wall_sec if trial is not None else None),
        init_time_seconds=_rounded(total((phases.environment_sec, phases.agent_setup_sec)) if phases else None),
        workflow_time_seconds=_rounded(phases.agent_sec if phases is not None else None),
        error=(cell.reason or str(cell.outcome)) if errored else None,
        error_class=trial.error_class if trial is not None else None,
        resolved=cell.outcome is Outcome.PASSED if cell.measured else None,
        failed_step=told.failed_step,
        failed_guard=told.failed_guard,
        failure=told.failure,
        retry_count=history.retries if history is not None else None,
        escalation_count=len(history.escalations) if history is not None else None,
        cost_usd=usage.cost_usd if usage is not None else None,
        outcome=cell.outcome,
        ending=told.ending,
        agent_status=trial.agent_status if trial is not None else None,
        agent=trial.agent if trial is not None else None,
        model=told.model or (trial.model if trial is not None else None),
        workflow=told.workflow,
        workflow_digest=told.config,
        context_digest=told.context,
        task_digest=(trial.task_digest or trial.task_checksum) if trial is not None else None,
        oracle=told.oracle,
        simulated=trial.simulated if trial is not None else False,
        suspect=[*(trial.suspect if trial is not None else ()), *odd],
        started_at=trial.started_at if trial is not None else None,
        finished_at=trial.finished_at if trial is not None else None,
        batch=view.batch,
        trial=f"{view.batch}/{cell.row.key}" if cell.row is not None else None,
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 2)


def _patch(folder: Path | None) -> tuple[str, list[str]]:
    """The patch that a trial left, and what is odd about it."""
    if folder is None:
        return "", []
    for path in (patch_file(folder), *(folder / other for other in _OTHER_PATCHES)):
        data = read_plain(path, _PATCH_LIMIT)
        if data is None:
            continue
        try:
            return data.decode(), []
        except UnicodeDecodeError:
            return data.decode(errors="replace"), ["the patch is no UTF-8 text: it is not shown as it was applied"]
    return "", []


def _artifacts(folder: Path, history: History) -> dict[str, Artifact]:
    """The artifacts of a history that are there."""
    found: dict[str, Artifact] = {}
    for name in {attempt.artifact for attempt in history.attempts if attempt.artifact}:
        artifact = read_artifact(folder, name) if name.isalnum() else None
        if artifact is not None:
            found[name] = artifact
    return found


def write(found: Sequence[Source], output: Path) -> Projected:
    """Write the projections of runs into a folder. Files that a run no longer has go; those of others stay."""
    for source in found:
        _write_run(source, output)
    predictions = tuple(_write_predictions([source.row for source in found], output / PREDICTIONS))
    _put(output / RESULTS, b"".join(encode_line(source.row) for source in found))
    return Projected(output / RESULTS, len(found), sum(source.trace is not None for source in found), predictions)


def _write_run(source: Source, output: Path) -> None:
    row, folder = source.row, output / DAGS / source.row.place
    trace = output / TRACES / row.place / TRACE
    if source.trace is not None:
        _put(trace, source.trace)
    elif is_plain(trace):
        trace.unlink()
    kept: set[Path] = set()
    if source.history is not None:
        graph = dag.build(row.trial or row.place, source.history, source.artifacts or {})
        page = dag_view.page(graph, f"{row.instance_id}, {row.arm}")
        kept = {_put(folder / path, encode_json(made)) for path, made in dag.objects(graph)}
        _put(folder / "index.json", encode_json(dag.index(graph)))
        _put(folder / "dag.html", page.encode(errors="replace"))
    for path in folder.glob("objects/*/*.json"):
        if path not in kept:
            path.unlink()
            if not any(path.parent.iterdir()):
                path.parent.rmdir()
    if source.history is None and (folder / "dag.html").is_file():
        (folder / "index.json").unlink(missing_ok=True)
        (folder / "dag.html").unlink()


def _write_predictions(rows: Sequence[ResultRow], folder: Path) -> Iterable[Path]:
    """The patches of each arm; of every run that ended, so that none is missing from an official evaluation."""
    arms: dict[tuple[str, int], list[dict[str, str]]] = {}
    for row in rows:
        entries = arms.setdefault((row.arm, row.attempt), [])
        if row.standing not in (Standing.NOT_RUN, Standing.ERROR):
            entry = {"instance_id": row.instance_id, "patch": row.patch_content, "prefix": f"{PREFIX}-{row.arm}"}
            entries.append(entry)
    for (arm, attempt), entries in arms.items():
        name = file_name(arm) if attempt == 1 else f"{file_name(arm)}.attempt-{attempt}"
        yield _put(folder / f"{name}.json", encode_json(entries))


def _put(path: Path, data: bytes) -> Path:
    """Write a file unless it is as it would be written: a projection of a large batch is mostly unchanged."""
    if not (is_plain(path) and path.stat().st_size == len(data) and path.read_bytes() == data):
        write_bytes(path, data, durable=False)
    return path
