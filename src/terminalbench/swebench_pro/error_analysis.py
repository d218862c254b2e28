"""Why runs did not resolve their instance: results and traces in, one analysis out. Linear in the number of runs.

`analyze` reads, `report` and `document` are pure, `write` leaves both beside the results.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from terminalbench.records.values import known_total
from terminalbench.swebench_pro.output import DAGS, TRACES, history_of
from terminalbench.swebench_pro.rows import ResultRow, ResultRows, RunVerdict, read_results
from terminalbench.text.foreign import flat
from terminalbench.workflow.history import Escalation, History

SUMMARY_LETTERS = 120
_SIGNS = (
    re.compile(r"\b\w*(?:Error|Exception|Failure)\b"),
    re.compile(r"\b(?:undefined|not found|does not apply|no such)\b", re.IGNORECASE),
    re.compile(r"^(?:FAILED|E )"),
)
"""What marks the telling line of a feedback, the most telling first."""
_LINES, _LETTERS = 400, 500


@dataclass(frozen=True)
class Retry:
    """One rejected attempt: the last of a run that was given up is marked as final."""

    step: str
    cycle: int
    attempt: int
    guard: str
    said: str
    final: bool = False


@dataclass(frozen=True)
class Run:
    """A run that did not resolve its instance, and what its trace says of it, where it was read."""

    row: ResultRow
    retries: tuple[Retry, ...] = ()
    escalations: tuple[Escalation, ...] = ()

    @property
    def guard(self) -> str:
        """The guard that had the last word; a run that was ended before one had says so."""
        return self.row.failed_guard or next((one.guard for one in self.retries if one.final), "(no guard)")

    @property
    def said(self) -> str | None:
        """Return what the last guard said, in a line."""
        return self.retries[-1].said if self.retries else None


@dataclass
class EscalationCount:
    """How often one thing was escalated for, or to: and in how many cases the step passed afterwards."""

    times: int = 0
    helped: int = 0
    unknown: int = 0

    def count(self, escalation: Escalation) -> None:
        """Take one in."""
        self.times += 1
        self.helped += escalation.helped is True
        self.unknown += escalation.helped is None


@dataclass
class Escalations:
    """All escalations, those of resolved runs too, by the guard that stagnated and by the step they went to."""

    total: EscalationCount = field(default_factory=EscalationCount)
    runs: int = 0
    runs_resolved: int = 0
    by_guard: dict[str, EscalationCount] = field(default_factory=lambda: defaultdict(EscalationCount))
    by_target: dict[str, EscalationCount] = field(default_factory=lambda: defaultdict(EscalationCount))

    def count(self, row: ResultRow, found: Sequence[Escalation]) -> None:
        """Take those of one run in."""
        self.runs += bool(found)
        self.runs_resolved += bool(found) and row.standing is RunVerdict.RESOLVED
        for escalation in found:
            self.total.count(escalation)
            self.by_guard[escalation.guard or "(unknown)"].count(escalation)
            for target in escalation.targets:
                self.by_target[target].count(escalation)


@dataclass
class Sums:
    """What the runs of an arm came to, took and cost. Unknown amounts are counted, never taken for nothing."""

    runs: int = 0
    standings: Counter[RunVerdict] = field(default_factory=Counter)
    retries: int | None = None
    retries_unknown: int = 0
    failed_attempts: int | None = None
    tokens: int | None = None
    tokens_unknown: int = 0
    cost_usd: float | None = None
    cost_unknown: int = 0
    wall: list[float] = field(default_factory=list)
    init: list[float] = field(default_factory=list)
    work: list[float] = field(default_factory=list)
    oracle: bool = False
    simulated: bool = False

    def count(self, row: ResultRow) -> None:
        """Take one run in."""
        self.runs += 1
        self.standings[row.standing] += 1
        self.oracle |= row.oracle
        self.simulated |= row.simulated
        if row.standing is RunVerdict.NOT_RUN:
            return
        self.retries = known_total((self.retries, row.retry_count))
        self.retries_unknown += row.retry_count is None
        self.failed_attempts = known_total((self.failed_attempts, row.failed_attempts))
        self.tokens = known_total((self.tokens, row.total_tokens))
        self.tokens_unknown += row.total_tokens is None
        self.cost_usd = known_total((self.cost_usd, row.cost_usd))
        self.cost_unknown += row.cost_usd is None
        for values, seconds in (
            (self.wall, row.wall_time_seconds),
            (self.init, row.init_time_seconds),
            (self.work, row.workflow_time_seconds),
        ):
            if seconds is not None:
                values.append(seconds)


@dataclass
class ErrorAnalysis:
    """Everything that is told. `escalations` None: traces were not read; `no_trace` runs had none.

    `legacy` rows are AtomicGuard's own, which were not imported.
    """

    source: str
    rows: int = 0
    bad_lines: int = 0
    repeated: int = 0
    models: tuple[str, ...] = ()
    instances: int = 0
    arms: dict[str, Sums] = field(default_factory=dict)
    total: Sums = field(default_factory=Sums)
    runs: dict[RunVerdict, list[Run]] = field(default_factory=lambda: {standing: [] for standing in RunVerdict})
    guards: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    escalations: Escalations | None = None
    no_trace: int = 0
    bad_trace_lines: int = 0
    legacy: int = 0


def analyze(results: Path, *, traces: bool = True) -> ErrorAnalysis:
    """Read a results file and, unless told not to, the traces beside it."""
    found = read_results(results)
    analysis = analyze_rows(found, str(results), results.parent / TRACES if traces else None)
    graph = next(results.parent.glob(f"{DAGS}/*/*/index.json"), None)
    if graph is not None and not (graph.parent / "dag.html").exists():  # ours have that page beside it
        analysis.legacy = sum(row.outcome is None and row.workflow is None for row in found.rows)
    return analysis


def analyze_rows(found: ResultRows, source: str, traces: Path | None) -> ErrorAnalysis:
    """The same of rows that were read."""
    if traces is not None and not traces.is_dir():
        traces = None
    analysis = ErrorAnalysis(source, len(found.rows), found.bad_lines, found.repeated)
    analysis.models = tuple(dict.fromkeys(row.model for row in found.rows if row.model))
    analysis.instances = len({row.instance_id for row in found.rows})
    analysis.escalations = Escalations() if traces is not None else None
    analysis.legacy = sum(row.is_legacy for row in found.rows)
    for row in found.rows:
        analysis.arms.setdefault(row.arm, Sums()).count(row)
        analysis.total.count(row)
        history = history_of(traces, row) if traces is not None and row.standing is not RunVerdict.NOT_RUN else None
        if history is None:
            analysis.no_trace += traces is not None and row.standing is not RunVerdict.NOT_RUN
        elif analysis.escalations is not None:
            analysis.escalations.count(row, history.escalations)
            analysis.bad_trace_lines += history.bad_lines
        if row.standing in (RunVerdict.RESOLVED, RunVerdict.NOT_RUN, RunVerdict.PENDING):
            continue
        run = Run(row, tuple(_retries(history, row)), history.escalations if history is not None else ())
        analysis.runs[row.standing].append(run)
        if row.standing is RunVerdict.GAVE_UP:
            analysis.guards[row.arm][run.guard] += 1
    return analysis


def _retries(history: History | None, row: ResultRow) -> Iterator[Retry]:
    """The attempts that guards rejected, in order."""
    rejected = [(one, by) for one in (history.attempts if history else ()) if (by := one.rejected_by) is not None]
    for place, (attempt, by) in enumerate(rejected, start=1):
        final = place == len(rejected) and row.standing is RunVerdict.GAVE_UP
        yield Retry(attempt.step, attempt.cycle, attempt.attempt, by.guard, error_summary(by.feedback), final)


def error_summary(feedback: str) -> str:
    """The line of a guard's feedback that says most: an error, else the first that is more than a word."""
    lines = [line.strip()[:_LETTERS] for line in feedback[: _LINES * _LETTERS].split("\n", _LINES)[:_LINES]]
    found = (line for sign in _SIGNS for line in lines if sign.search(line))
    line = next(found, None) or next((line for line in lines if len(line) > 10), " ".join(lines))
    return flat(line.removeprefix("E  "), SUMMARY_LETTERS)


def mean(values: Sequence[float]) -> float | None:
    """The mean; None of nothing."""
    return sum(values) / len(values) if values else None


def document(analysis: ErrorAnalysis, at: datetime) -> dict[str, Any]:
    """The analysis for programs."""
    every = analysis.escalations
    return {
        "schema_version": 1,
        "created_at": at.isoformat(timespec="seconds"),
        "results": analysis.source,
        "rows": analysis.rows,
        "bad_lines": analysis.bad_lines,
        "repeated_rows": analysis.repeated,
        "legacy_rows": analysis.legacy,
        "models": list(analysis.models),
        "instances": analysis.instances,
        "arms": {arm: _sums(sums) for arm, sums in analysis.arms.items()},
        "failed_guards": {arm: dict(counts.most_common()) for arm, counts in analysis.guards.items()},
        "escalations": None
        if every is None
        else {
            **_helped(every.total),
            "runs": every.runs,
            "runs_resolved": every.runs_resolved,
            "stagnant_guards": {name: _helped(one) for name, one in ordered(every.by_guard)},
            "targets": {name: _helped(one) for name, one in ordered(every.by_target)},
        },
        "runs_without_trace": analysis.no_trace if every is not None else None,
        "failures": [_failure(run) for run in analysis.runs[RunVerdict.GAVE_UP]],
        "errors": [_failure(run) for run in analysis.runs[RunVerdict.ERROR]],
        "unresolved": [_failure(run) for run in analysis.runs[RunVerdict.UNRESOLVED]],
    }


def _sums(sums: Sums) -> dict[str, Any]:
    return {
        "runs": sums.runs,
        **{str(standing).replace(" ", "_"): sums.standings[standing] for standing in RunVerdict},
        "retries": sums.retries,
        "retries_unknown": sums.retries_unknown,
        "failed_attempts": sums.failed_attempts,
        "total_tokens": sums.tokens,
        "tokens_unknown": sums.tokens_unknown,
        "cost_usd": sums.cost_usd,
        "cost_unknown": sums.cost_unknown,
        "mean_wall_sec": mean(sums.wall),
        "mean_init_sec": mean(sums.init),
        "mean_workflow_sec": mean(sums.work),
        "oracle": sums.oracle,
    }


def _helped(one: EscalationCount) -> dict[str, int]:
    return {"times": one.times, "helped": one.helped, "unknown": one.unknown}


def ordered(found: Mapping[str, EscalationCount]) -> list[tuple[str, EscalationCount]]:
    """The most frequent first."""
    return sorted(found.items(), key=lambda item: (-item[1].times, item[0]))


def _failure(run: Run) -> dict[str, Any]:
    row = run.row
    return {
        "instance_id": row.instance_id,
        "arm": row.arm,
        "attempt": row.attempt,
        "trial": row.trial,
        "outcome": row.outcome,
        "failed_step": row.failed_step,
        "failed_guard": row.failed_guard,
        "failure": row.failure,
        "error_class": row.error_class,
        "error": row.error,
        "retry_count": row.retry_count,
        "escalations": len(run.escalations) or row.escalation_count,
        "cost_usd": row.cost_usd,
        "error_summary": run.said,
        "retries": [
            {"step": one.step, "cycle": one.cycle, "attempt": one.attempt, "guard": one.guard}
            | {"error_summary": one.said, "final": one.final}
            for one in run.retries
        ],
    }
