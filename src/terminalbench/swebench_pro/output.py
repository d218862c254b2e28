"""The output folder of an experiment: one class owns its paths; and the traces of its runs, read back.

Traces of AtomicGuard are read too, in both places that its versions wrote them to.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from terminalbench.campaign import batches_below
from terminalbench.decode import NOT_DECODED, decode
from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.files import FolderPath, read_plain
from terminalbench.swebench_pro.rows import ResultRow, text_of
from terminalbench.workflow.history import History, fold, read_events
from terminalbench.workflow.trace import TraceEvent, TraceEventKind

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
