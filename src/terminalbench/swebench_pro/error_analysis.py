"""Why runs did not resolve their instance: results and traces in, one analysis out. Linear in the number of runs."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.records.values import known_total
from terminalbench.swebench_pro.projections import DAGS, TRACES, history_of
from terminalbench.swebench_pro.rows import ResultRow, ResultRows, RunVerdict, read_results
from terminalbench.text.foreign import flat
from terminalbench.text.names import named
from terminalbench.workflow.history import Escalation, History

SUMMARY_LETTERS = 120
_SIGNS = (
    re.compile(r"\b\w*(?:Error|Exception|Failure)\b"),
    re.compile(r"\b(?:undefined|not found|does not apply|no such)\b", re.IGNORECASE),
    re.compile(r"^(?:FAILED|E )"),
)
"""What marks the telling line of a feedback, the most telling first."""
_LINES, _LETTERS = 400, 500
LISTED = {
    RunVerdict.GAVE_UP: ("failures", "Runs that gave up"),
    RunVerdict.ERROR: ("errors", "Errors without a verdict"),
    RunVerdict.UNRESOLVED: ("unresolved", "Patches that did not resolve their instance"),
}
"""The runs that are told one by one: their key in the document, and their title in the report."""
_TOLD_OF_RUN = (
    "instance_id", "arm", "attempt", "trial", "outcome", "failed_step", "failed_guard", "failure", "error_class",
    "error", "retry_count", "cost_usd",
)  # fmt: skip


class Retry(msgspec.Struct, frozen=True):
    """One rejected attempt: the last of a run that was given up is marked as final."""

    step: str
    cycle: int
    attempt: int
    guard: str
    error_summary: str
    final: bool


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
    def escalated(self) -> int:
        """Return how often it escalated, by its trace, else by its row."""
        return len(self.escalations) or self.row.escalation_count or 0


class EscalationCount(msgspec.Struct):
    """How often one thing was escalated for, or to: and in how many cases the step passed afterwards."""

    times: int = 0
    helped: int = 0
    unknown: int = 0

    def count(self, escalation: Escalation) -> None:
        """Count one more."""
        self.times += 1
        self.helped += escalation.helped is True
        self.unknown += escalation.helped is None

    def __str__(self) -> str:
        known = self.times - self.unknown
        return f"The step passed afterwards in {self.helped} of {known} cases." if known else "No outcome is known."


type EscalationCounts = dict[str, EscalationCount]


@dataclass
class Escalations:
    """All escalations, those of resolved runs too, by the guard that stagnated and by the step they went to."""

    total: EscalationCount = field(default_factory=EscalationCount)
    runs: int = 0
    runs_resolved: int = 0
    by_guard: EscalationCounts = field(default_factory=lambda: defaultdict(EscalationCount))
    by_target: EscalationCounts = field(default_factory=lambda: defaultdict(EscalationCount))

    def count(self, row: ResultRow, found: Sequence[Escalation]) -> None:
        """Count those of one run."""
        self.runs += bool(found)
        self.runs_resolved += bool(found) and row.standing is RunVerdict.RESOLVED
        for escalation in found:
            self.total.count(escalation)
            self.by_guard[escalation.guard or "(unknown)"].count(escalation)
            for target in escalation.targets:
                self.by_target[target].count(escalation)


@dataclass
class ArmRuns:
    """The runs of an arm, with sums over those that ran. Unknown amounts are counted, never taken for nothing."""

    rows: list[ResultRow] = field(default_factory=list)

    @property
    def standings(self) -> Counter[RunVerdict]:
        """Return how many runs came to what."""
        return Counter(row.standing for row in self.rows)

    def values(self, name: str) -> list[Any]:
        """Return a field of each run that ran."""
        return [getattr(row, name) for row in self.rows if row.standing is not RunVerdict.NOT_RUN]

    def total(self, name: str) -> Any:
        """Return the sum of what is known of a field; None where nothing is."""
        return known_total(self.values(name))

    def unknown(self, name: str) -> int:
        """Return for how many runs a field is unknown."""
        return self.values(name).count(None)

    def mean(self, name: str) -> float | None:
        """Return the mean of what is known of a field; None where nothing is."""
        known = [value for value in self.values(name) if value is not None]
        return sum(known) / len(known) if known else None

    @property
    def oracle(self) -> bool:
        """Return whether a run of it sees the hidden verdict."""
        return any(row.oracle for row in self.rows)

    @property
    def badged(self) -> str:
        """The name of the arm with its badges."""
        simulated = " (simulated)" if any(row.simulated for row in self.rows) else ""
        return named(self.rows[0].arm, oracle=self.oracle) + simulated


@dataclass
class ErrorAnalysis:
    """Everything that is told. `escalations` None: traces were not read; `no_trace` runs had none.

    `legacy` rows are AtomicGuard's own, which were not imported.
    """

    source: str
    results: ResultRows
    arms: dict[str, ArmRuns] = field(default_factory=lambda: defaultdict(ArmRuns))
    runs: dict[RunVerdict, list[Run]] = field(default_factory=lambda: {standing: [] for standing in LISTED})
    guards: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    escalations: Escalations | None = None
    no_trace: int = 0
    bad_trace_lines: int = 0
    legacy: int = 0

    @property
    def total(self) -> ArmRuns:
        """The runs of all arms."""
        return ArmRuns(self.results.rows)

    @property
    def models(self) -> list[str]:
        """The models that were asked, in the order of the rows."""
        return list(dict.fromkeys(row.model for row in self.results.rows if row.model))

    @property
    def instances(self) -> int:
        """Return how many instances were run."""
        return len({row.instance_id for row in self.results.rows})


def analyze(results: Path, *, traces: bool = True) -> ErrorAnalysis:
    """Read a results file and, unless told not to, the traces beside it."""
    found = read_results(results)
    folder = results.parent / TRACES
    analysis = ErrorAnalysis(str(results), found, escalations=Escalations() if traces and folder.is_dir() else None)
    for row in found.rows:
        analysis.arms[row.arm].rows.append(row)
        history = None
        if analysis.escalations is not None and row.standing is not RunVerdict.NOT_RUN:
            history = history_of(folder, row)
            if history is None:
                analysis.no_trace += 1
            else:
                analysis.escalations.count(row, history.escalations)
                analysis.bad_trace_lines += history.bad_lines
        if row.standing not in LISTED:
            continue
        run = Run(row, tuple(_retries(history, row)), history.escalations if history is not None else ())
        analysis.runs[row.standing].append(run)
        if row.standing is RunVerdict.GAVE_UP:
            analysis.guards[row.arm][run.guard] += 1
    graph = next(results.parent.glob(f"{DAGS}/*/*/index.json"), None)
    # Beside a graph of ours is its page. One of AtomicGuard: its rows may lack even their status.
    foreign = graph is not None and not (graph.parent / "dag.html").exists()
    analysis.legacy = sum(
        row.outcome is None and row.workflow is None if foreign else row.is_legacy for row in found.rows
    )
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


def document(analysis: ErrorAnalysis, at: datetime) -> dict[str, Any]:
    """The analysis for programs."""
    every = analysis.escalations
    escalations = None
    if every is not None:
        escalations = {
            **msgspec.structs.asdict(every.total),
            "runs": every.runs,
            "runs_resolved": every.runs_resolved,
            "stagnant_guards": dict(ordered(every.by_guard)),
            "targets": dict(ordered(every.by_target)),
        }
    found = {
        "schema_version": 1,
        "created_at": at.isoformat(timespec="seconds"),
        "results": analysis.source,
        "rows": len(analysis.results.rows),
        "bad_lines": analysis.results.bad_lines,
        "repeated_rows": analysis.results.repeated,
        "legacy_rows": analysis.legacy,
        "models": analysis.models,
        "instances": analysis.instances,
        "arms": {arm: _sums(runs) for arm, runs in analysis.arms.items()},
        "failed_guards": {arm: dict(counts.most_common()) for arm, counts in analysis.guards.items()},
        "escalations": escalations,
        "runs_without_trace": analysis.no_trace if every is not None else None,
        **{key: [_failure(run) for run in analysis.runs[standing]] for standing, (key, _) in LISTED.items()},
    }
    return msgspec.to_builtins(found)


def _sums(runs: ArmRuns) -> dict[str, Any]:
    return {
        "runs": len(runs.rows),
        **{str(standing).replace(" ", "_"): runs.standings[standing] for standing in RunVerdict},
        "retries": runs.total("retry_count"),
        "retries_unknown": runs.unknown("retry_count"),
        "failed_attempts": runs.total("failed_attempts"),
        "total_tokens": runs.total("total_tokens"),
        "tokens_unknown": runs.unknown("total_tokens"),
        "cost_usd": runs.total("cost_usd"),
        "cost_unknown": runs.unknown("cost_usd"),
        "mean_wall_sec": runs.mean("wall_time_seconds"),
        "mean_init_sec": runs.mean("init_time_seconds"),
        "mean_workflow_sec": runs.mean("workflow_time_seconds"),
        "oracle": runs.oracle,
    }


def _failure(run: Run) -> dict[str, Any]:
    return {
        **{name: getattr(run.row, name) for name in _TOLD_OF_RUN},
        "escalations": len(run.escalations) or run.row.escalation_count,
        "error_summary": run.retries[-1].error_summary if run.retries else None,
        "retries": list(run.retries),
    }


def ordered(found: Mapping[str, EscalationCount]) -> list[tuple[str, EscalationCount]]:
    """The most frequent first."""
    return sorted(found.items(), key=lambda item: (-item[1].times, item[0]))
