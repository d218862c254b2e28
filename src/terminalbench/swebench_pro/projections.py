"""What SWE-Bench Pro users look for, made from batches: results.jsonl, traces/, artifact_dags/, predictions/;
and the folder that has them: one class owns its paths, traces are read back.

Nothing here is read by a run or a resume. A projection that was deleted comes back byte for byte.
Traces of AtomicGuard are read too, in both places that its versions wrote them to.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.analytics.rows import rows_of
from terminalbench.campaign import batches_below
from terminalbench.decode import NOT_DECODED, decode
from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.files import FolderPath, is_plain, read_plain, write_changed
from terminalbench.index.queries import BatchView, CellState
from terminalbench.json_files import encode_json, encode_line
from terminalbench.live.status import view_now
from terminalbench.records.trial import Outcome
from terminalbench.records.values import total
from terminalbench.swebench_pro import dag
from terminalbench.swebench_pro.predictions import prediction
from terminalbench.swebench_pro.rows import RESULTS, ResultRow, RunVerdict, file_name, text_of
from terminalbench.workflow.history import History, fold, read_events
from terminalbench.workflow.model import Artifact
from terminalbench.workflow.trace import LARGE, TraceEvent, TraceEventKind, patch_file, read_artifact, trace_file

SLUG = "swe-bench-pro"
TRACES, DAGS, PREDICTIONS = "traces", "artifact_dags", "predictions"
TRACE = "trace.jsonl"
_LIMIT = 256 << 20


@dataclass(frozen=True)
class Output:
    """Where everything of one SWE-Bench Pro experiment is.

    <folder>/
      experiment.toml      what is run; written once
      batches/<slug>/<n>/  its batch, and batches/index.db over it: all that a resume reads
      results.jsonl        one line a planned run; with all that follows, made from the batch
      traces/<instance>/<arm>/trace.jsonl     what its workflow did
      artifact_dags/<instance>/<arm>/         index.json  objects/<2>/<id>.json  dag.html
      predictions/<arm>.json                  patches in the official format
      final_error_analysis_*.md  final_errors_*.json  charts/
    """

    folder: Path

    experiment_toml = FolderPath("experiment.toml")
    lock = FolderPath(".lock")
    results_root = FolderPath("batches")

    def batches(self) -> list[Batch]:
        """Its batches with a plan, in order."""
        return batches_below(self.results_root)


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


def history_of(traces: Path, row: ResultRow) -> History | None:
    """Return what the workflow of a run did; None without a trace."""
    folder = traces / row.place
    data = read_plain(folder / TRACE, _LIMIT)
    if data is not None:
        events, bad = read_events(data)
        return fold(events, bad)
    found = _older_files(folder)
    return fold(*_older(read_plain(found[-1], _LIMIT) or b"")) if found else None


def older_events(folder: Path) -> list[TraceEvent]:
    """Return what AtomicGuard's event files of a run tell; none without any."""
    found = _older_files(folder)
    return _older(read_plain(found[-1], _LIMIT) or b"")[0] if found else []


def _older_files(folder: Path) -> list[Path]:
    """Each is one run of a workflow; the last is the one whose result was kept."""
    return [*sorted(folder.glob("*.jsonl")), *sorted(folder.glob("events/*.jsonl"))]


_OLDER = {
    "STEP_START": TraceEventKind.STEP_START,
    "STEP_PASS": TraceEventKind.STEP_PASS,
    "STEP_FAIL": TraceEventKind.STEP_FAIL,
    "STAGNATION": TraceEventKind.STAGNATION,
    "ESCALATE": TraceEventKind.ESCALATE,
    "CASCADE_INVALIDATE": TraceEventKind.INVALIDATE,
}


def _older(data: bytes) -> tuple[list[TraceEvent], int]:
    """A trace that AtomicGuard wrote, which has no attempts and no end; and how many of its lines are none."""
    events: list[TraceEvent] = []
    bad = 0
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        event = _older_event(line, len(events) + 1)
        if event is None:
            bad += 1
        else:
            events.append(event)
    return events, bad


def _older_event(line: bytes, number: int) -> TraceEvent | None:
    try:
        raw = decode(line)
    except NOT_DECODED:
        return None
    kind = _OLDER.get(str(raw.get("event_type"))) if isinstance(raw, dict) else None
    if kind is None:
        return None
    told = raw.get("escalation")
    escalation: dict[str, Any] = told if isinstance(told, dict) else {}
    targets = escalation.get("targets" if kind is TraceEventKind.ESCALATE else "invalidated")
    if kind is TraceEventKind.INVALIDATE and not targets:
        targets = [raw.get("action_pair_id")]
    return TraceEvent(
        number=number,
        at=str(raw.get("created_at") or ""),
        kind=kind,
        step=text_of(raw.get("action_pair_id")),
        cycle=raw["attempt"] if isinstance(raw.get("attempt"), int) else None,
        guard=text_of(raw.get("guard_name")) or text_of(escalation.get("stagnant_guard")),
        targets=tuple(one for one in targets if isinstance(one, str)) if isinstance(targets, list) else (),
        summary=text_of(escalation.get("failure_summary")) or text_of(raw.get("summary")),
    )


_TRACE_LIMIT, _PATCH_LIMIT = 256 << 20, 64 << 20
_OTHER_PATCHES = ("artifacts/logs/artifacts/model.patch", "artifacts/model.patch")
"""Where the task of an instance leaves the diff of an agent that writes none itself."""


@dataclass(frozen=True)
class RunSource:
    """One run: its row, its trace as bytes, its history and artifacts; an agent without a workflow has none.

    `written`: its files are as they should be, and were not read again. `traced`: it has a trace.
    """

    row: ResultRow
    trace: bytes | None = None
    history: History | None = None
    artifacts: Mapping[str, Artifact] | None = None
    written: bool = False
    traced: bool = False


@dataclass(frozen=True)
class ProjectionFiles:
    """What was written."""

    results: Path
    rows: int
    traces: int
    predictions: tuple[Path, ...]


def project(batches: Sequence[Batch], output: Path, known: dict[str, ResultRow] | None = None) -> ProjectionFiles:
    """Write every projection of batches into a folder.

    Of a run that two batches hold, the later one that ran counts. Rows of several batches are in one order, which their
    number does not change. `known` are rows of trials that were written already, and gains those of this time.
    """
    rows: dict[tuple[str, str, int], ResultRow] = {}
    traces = 0
    for batch in batches:
        for source in sources(batch, known or {}):
            row = source.row
            if row.standing is RunVerdict.NOT_RUN and row.key in rows:
                continue
            rows[row.key] = row
            traces += source.traced
            if not source.written:
                _write_run(source, output)
            if known is not None and row.trial is not None and row.outcome != Outcome.NOT_RUN:
                known[row.trial] = row
    found = list(rows.values())
    if len(batches) > 1:
        arms = {arm: place for place, arm in enumerate(dict.fromkeys(row.arm for row in found))}
        found.sort(key=lambda row: (arms[row.arm], row.instance_id, row.attempt))
    return _write_rows(found, traces, output)


def sources(batch: Batch, known: Mapping[str, ResultRow], view: BatchView | None = None) -> Iterable[RunSource]:
    """Every planned run of a batch, as its index and its trial folders tell it now; of `known` trials their row.

    A reader that has the `view` of the batch gives it: nothing is looked for again.
    """
    view = view or view_now(batch)
    measured = rows_of([view])
    ids = {job.profile: job.profile_id for job in view.plan.jobs}
    for cell, row in zip(view.cells, measured, strict=True):
        now = {
            "profile_id": ids.get(cell.profile),
            "superseded": row.superseded,
            "spent_usd": row.cost_usd,
            "spent_tokens": row.tokens,
        }
        earlier = known.get(f"{view.batch}/{cell.row.key}") if cell.row is not None else None
        if earlier is not None and earlier.outcome == cell.outcome:
            yield RunSource(msgspec.structs.replace(earlier, **now), written=True, traced=earlier.ending is not None)
            continue
        folder = batch.folder / cell.row.folder if cell.row is not None else None
        trace = read_plain(trace_file(folder), _TRACE_LIMIT) if folder is not None else None
        history = fold(*read_events(trace)) if trace is not None else None
        made = msgspec.structs.replace(_row(view, cell, history, folder), **now)
        artifacts = _artifacts(folder, history) if folder is not None and history is not None else None
        yield RunSource(made, trace, history, artifacts, traced=trace is not None)


def _row(view: BatchView, cell: CellState, history: History | None, folder: Path | None) -> ResultRow:
    trial = cell.row.trial if cell.row is not None else None
    phases = trial.phases if trial is not None else None
    patch, odd = _patch(folder)
    told = history or History()
    errored = not cell.measured
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
        failed_attempts=history.rejected if history is not None else None,
        best_submitted=told.best_submitted,
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
            return data.decode(errors="replace"), [
                "the patch is not UTF-8 text, so it is not shown exactly as it was applied"
            ]
    return "", []


def _artifacts(folder: Path, history: History) -> dict[str, Artifact]:
    """The artifacts of a history that are there."""
    found: dict[str, Artifact] = {}
    for name in {attempt.artifact for attempt in history.attempts if attempt.artifact}:
        artifact = read_artifact(folder, name) if name.isalnum() else None
        if artifact is not None:
            found[name] = artifact
    return found


def write(found: Sequence[RunSource], output: Path) -> ProjectionFiles:
    """Write the projections of runs into a folder. Files that a run no longer has go; those of others stay."""
    for source in found:
        _write_run(source, output)
    return _write_rows([source.row for source in found], sum(source.trace is not None for source in found), output)


def _write_rows(rows: Sequence[ResultRow], traces: int, output: Path) -> ProjectionFiles:
    predictions = tuple(_write_predictions(rows, output / PREDICTIONS))
    _put(output / RESULTS, b"".join(encode_line(_without_large_patch(row)) for row in rows))
    return ProjectionFiles(output / RESULTS, len(rows), traces, predictions)


def _write_run(source: RunSource, output: Path) -> None:
    row, folder = source.row, output / DAGS / source.row.place
    trace = output / TRACES / row.place / TRACE
    if source.trace is not None:
        _put(trace, source.trace)
    elif is_plain(trace):
        trace.unlink()
    kept: set[Path] = set()
    if source.history is not None:
        graph = dag.build(row.trial or row.place, source.history, source.artifacts or {})
        page = dag.page(graph, f"{row.instance_id}, {row.arm}")
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
        if row.standing not in (RunVerdict.NOT_RUN, RunVerdict.ERROR):
            entries.append(prediction(row))
    for (arm, attempt), entries in arms.items():
        yield _put(folder / _predictions_file(arm, attempt), encode_json(entries))


def _predictions_file(arm: str, attempt: int) -> str:
    return f"{file_name(arm)}.json" if attempt == 1 else f"{file_name(arm)}.attempt-{attempt}.json"


def _without_large_patch(row: ResultRow) -> ResultRow:
    """The row as it is written: a large patch stands in its predictions, and only there."""
    if len(row.patch_content) <= LARGE or row.standing in (RunVerdict.NOT_RUN, RunVerdict.ERROR):
        return row
    file = f"{PREDICTIONS}/{_predictions_file(row.arm, row.attempt)}"
    return msgspec.structs.replace(row, patch_content="", patch_file=file)


def _put(path: Path, data: bytes) -> Path:
    write_changed(path, data)
    return path
