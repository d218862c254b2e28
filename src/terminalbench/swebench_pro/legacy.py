"""Results of AtomicGuard's own runner, as ours: results.jsonl and artifact_dags/ in, rows, traces and graphs out.

Its rows say success of runs that made nothing, and count only the tokens of accepted artifacts; the artifacts hold all
of them. Its artifacts name neither cycles nor escalations: a step that starts anew is a new cycle, and escalations come
from its event files where there are any. Of several runs in one graph the last is taken.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.decode import NOT_DECODED, decode
from terminalbench.errors import UserError
from terminalbench.files import read_plain
from terminalbench.json_files import encode_line
from terminalbench.records.trial import Usage
from terminalbench.records.values import known_total
from terminalbench.swebench_pro.projections import DAGS, TRACES, RunSource, older_events
from terminalbench.swebench_pro.rows import RESULTS, ResultRow, RunVerdict, place, read_results
from terminalbench.workflow.history import History, fold
from terminalbench.workflow.model import Artifact, Kind
from terminalbench.workflow.trace import TraceEvent, TraceEventKind, WorkflowEnding

_LIMIT = 64 << 20
_KINDS = (
    ("review", Kind.REVIEW), ("analysis", Kind.ANALYSIS), ("locali", Kind.LOCALISATION), ("test", Kind.TEST),
    ("patch", Kind.PATCH), ("fix", Kind.PATCH), ("singleshot", Kind.PATCH),
)  # fmt: skip
"""What a step makes, by what its name holds: older files say nothing else of it."""
_ESCALATIONS = (TraceEventKind.STAGNATION, TraceEventKind.ESCALATE, TraceEventKind.INVALIDATE)


@dataclass(frozen=True)
class LegacyImport:
    """The runs, and what a reader must know: how many lines and objects were unreadable, how tokens differ."""

    sources: list[RunSource]
    bad_lines: int = 0
    bad_objects: int = 0
    tokens_in_rows: int | None = None
    tokens_in_artifacts: int | None = None
    failed_as_success: int = 0


@dataclass
class _LegacyDag:
    objects: list[dict[str, Any]] = field(default_factory=list)
    bad: int = 0


def read_legacy(folder: Path) -> LegacyImport:
    """Everything that a folder of AtomicGuard's output holds."""
    if not (folder / RESULTS).is_file() and not (folder / DAGS).is_dir():
        raise UserError(
            f"contains neither {RESULTS} nor {DAGS}/", where=str(folder), hint="name AtomicGuard's output folder"
        )
    found = read_results(folder / RESULTS) if (folder / RESULTS).is_file() else None
    rows = {(row.instance_id, row.arm): row for row in (found.rows if found is not None else ())}
    known = {tuple(place(*key).split("/")) for key in rows}
    for graph in sorted((folder / DAGS).glob("*/*/index.json")):
        key = (graph.parent.parent.name, graph.parent.name)
        if key not in known:
            rows[key] = ResultRow(instance_id=key[0], arm=key[1])
    sources, bad, mistaken = [], 0, 0
    before: list[int | None] = []
    for row in rows.values():
        made = _dag(folder / DAGS / row.place)
        source = _source(row, made, folder / TRACES / row.place)
        bad += made.bad
        before.append(row.total_tokens)
        failed = source.row.standing is RunVerdict.GAVE_UP
        mistaken += failed and row.failed_step is None and row.workflow_status != "failed"
        sources.append(source)
    after = [source.row.total_tokens for source in sources]
    bad_lines = found.bad_lines if found is not None else 0
    return LegacyImport(sources, bad_lines, bad, known_total(before), known_total(after), mistaken)


def _dag(folder: Path) -> _LegacyDag:
    """The objects of the last run in a graph, in the order in which they were made."""
    found = _LegacyDag()
    for path in sorted(folder.glob("objects/*/*.json")):
        data = read_plain(path, _LIMIT)
        try:
            raw = decode(data or b"")
        except NOT_DECODED:
            raw = None
        if isinstance(raw, dict) and isinstance(raw.get("artifact_id"), str):
            found.objects.append(raw)
        else:
            found.bad += 1
    found.objects.sort(key=lambda one: (str(one.get("created_at")), str(one["artifact_id"])))
    if found.objects:
        last = found.objects[-1].get("workflow_id")
        found.objects = [one for one in found.objects if one.get("workflow_id") == last]
    return found


def _source(row: ResultRow, made: _LegacyDag, traces: Path) -> RunSource:
    """One run. What its artifacts say goes before what its row says."""
    if not made.objects:
        return RunSource(msgspec.structs.replace(row, workflow=row.workflow or row.arm))
    artifacts, events = _events(made.objects, row)
    events = _numbered([*events, *(event for event in older_events(traces) if event.kind in _ESCALATIONS)])
    history = fold(events)
    tokens = history.tokens_by_step()
    gave_up = history.ending is not WorkflowEnding.DONE
    total = known_total(attempt.usage.total_tokens for attempt in history.attempts)
    full = msgspec.structs.replace(
        row,
        total_tokens=total if total is not None else row.total_tokens,
        per_step_tokens=tokens or row.per_step_tokens,
        retry_count=row.retry_count if row.retry_count is not None else _retries(history),
        failed_attempts=history.rejected,
        escalation_count=len(history.escalations),
        failed_step=row.failed_step or (history.failed_step if gave_up else None),
        failed_guard=row.failed_guard or (history.failed_guard if gave_up else None),
        ending=history.ending,
        workflow=row.workflow or row.arm,
    )
    return RunSource(full, b"".join(encode_line(event) for event in events), history, artifacts)


def _retries(history: History) -> int:
    """Return the retries of a run as its study counted them: the failed attempts of the step that was given up."""
    if history.ending is WorkflowEnding.DONE:
        return 0
    last = max((one.cycle for one in history.attempts if one.step == history.failed_step), default=0)
    mine = [one for one in history.attempts if (one.step, one.cycle) == (history.failed_step, last)]
    return sum(one.rejected_by is not None for one in mine)


def _events(objects: Sequence[Mapping[str, Any]], row: ResultRow) -> tuple[dict[str, Artifact], list[TraceEvent]]:
    """The artifacts by our names, and a trace that tells of the same attempts."""
    artifacts: dict[str, Artifact] = {}
    names: dict[str, str] = {}
    cycles: dict[str, int] = {}
    seen: dict[str, int] = {}
    first = str(objects[0].get("created_at") or "")
    events = [_event(TraceEventKind.RUN_START, first, workflow=row.arm, model=row.model)]
    for raw in objects:
        step, at = str(raw.get("action_pair_id") or "?"), str(raw.get("created_at") or "")
        if raw.get("previous_attempt_id") is None or step not in cycles:
            cycles[step] = cycles.get(step, 0) + 1
            seen[step] = 0
            events.append(_event(TraceEventKind.STEP_START, at, step=step, cycle=cycles[step]))
        seen[step] += 1
        where: dict[str, Any] = {"step": step, "cycle": cycles[step], "attempt": seen[step]}
        metadata, context = _table(raw.get("metadata")), _table(raw.get("context"))
        error = metadata.get("generator_error")
        artifact = None if error else _artifact(raw, step, where, artifacts)
        used = {name: names[one] for name, one in _table(context.get("dependency_artifacts")).items() if one in names}
        if artifact is not None:
            names[str(raw["artifact_id"])] = artifact
        told = {"artifact": artifact, "reason": str(error) if error else None, "usage": _usage(metadata), "uses": used}
        events += [_event(TraceEventKind.ATTEMPT, at, **told, **where), *_guards(raw, at, where)]
    return artifacts, [*events, _end(objects, events)]


def _event(kind: TraceEventKind, at: str, **fields: Any) -> TraceEvent:
    """An event that gets its number when all are in order."""
    return TraceEvent(number=1, at=at, kind=kind, **fields)


def _artifact(raw: Mapping[str, Any], step: str, where: Mapping[str, Any], found: dict[str, Artifact]) -> str:
    kind = next((kind for part, kind in _KINDS if part in step), Kind.PLAN)
    content = str(raw.get("content") or "")
    name = Artifact.name_of(kind, content)
    found.setdefault(name, Artifact(id=name, kind=kind, content=content, **where))
    return name


def _guards(raw: Mapping[str, Any], at: str, where: Mapping[str, Any]) -> Iterable[TraceEvent]:
    result = _table(raw.get("guard_result"))
    accepted = raw.get("status") in ("accepted", "superseded") or result.get("passed") is True
    if result and not _table(raw.get("metadata")).get("generator_error"):
        name, said = str(result.get("guard_name") or "guard"), str(result.get("feedback") or "")
        told = {"guard": name, "passed": accepted, "fatal": result.get("fatal") is True, "feedback": said}
        yield _event(TraceEventKind.GUARD, at, **told, **where)
    if accepted:
        yield _event(TraceEventKind.STEP_PASS, at, step=where["step"], cycle=where["cycle"])


def _end(objects: Sequence[Mapping[str, Any]], events: Sequence[TraceEvent]) -> TraceEvent:
    """Return how the run ended: with the last artifact accepted, or given up at its step."""
    last, at = events[-1], str(objects[-1].get("created_at") or "")
    if last.kind is TraceEventKind.STEP_PASS:
        return _event(TraceEventKind.RUN_END, at, ending=WorkflowEnding.DONE)
    ending = WorkflowEnding.FATAL if last.fatal else WorkflowEnding.EXHAUSTED
    return _event(TraceEventKind.RUN_END, at, ending=ending, step=last.step, guard=last.guard)


def _numbered(events: Iterable[TraceEvent]) -> list[TraceEvent]:
    """Return the events in the order of time, numbered; the end stays the end."""
    order = sorted(events, key=lambda event: (event.kind is TraceEventKind.RUN_END, event.at))
    return [msgspec.structs.replace(event, number=number) for number, event in enumerate(order, start=1)]


def _usage(metadata: Mapping[str, Any]) -> Usage:
    counts = [metadata.get(name) for name in ("prompt_tokens", "completion_tokens")]
    sent, answered = (
        one if isinstance(one, int) and not isinstance(one, bool) and one >= 0 else None for one in counts
    )
    return Usage(input_tokens=sent, output_tokens=answered)


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
