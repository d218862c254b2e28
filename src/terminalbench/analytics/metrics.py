"""The measures as tables: a row a trial, a summary a profile. Streams: keeps numbers, not findings."""

import csv
import io
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from terminalbench.analytics.findings.measures import MEASURES, MIX, NAMES, TRIPWIRES
from terminalbench.analytics.findings.trial import Value, as_table
from terminalbench.analytics.labels import ANALYZER as LABEL
from terminalbench.analytics.labels import People, corrected, said_of
from terminalbench.harbor.read.results import ReadState
from terminalbench.index.queries import CellState, TrialRow
from terminalbench.index.totals import TaskCounts, pass_rates
from terminalbench.records import Finding, Outcome

IDENTITY = (
    "batch", "task", "dataset", "family", "profile", "attempt", "trial", "outcome", "reason", "agent", "agent_version",
    "model", "started_at", "simulated", "suspect",
)  # fmt: skip
"""The first columns of metrics_detail.csv; the measures follow, then `<analyzer>.<finding>` of further analyzers."""
SUMMARY_COLUMNS = ("profile", "measure", "trials", "known", "mean", "median", "min", "max", "sum")
_PER_SUCCESS = ("cost_usd", "tokens", "wall_sec", "agent_steps")
_BUILT_IN = ("trial", "behaviour", "tripwires", "failure")
_KINDS = {measure.name: measure.kind for measure in MEASURES}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def detail_columns(further: Iterable[str] = ()) -> list[str]:
    """The header of metrics_detail.csv."""
    return [*IDENTITY, *NAMES, *further]


def values_of(findings: Iterable[Finding]) -> dict[str, Value]:
    """Findings as columns: measures by name, calls by kind as one table, others as `<analyzer>.<name>`."""
    values: dict[str, Value] = {}
    mix: dict[str, int] = {}
    for finding in findings:
        if finding.analyzer not in _BUILT_IN or finding.name not in _KINDS:
            if finding.name.startswith(f"{MIX}.") and isinstance(finding.value, int):
                mix[finding.name.removeprefix(f"{MIX}.")] = finding.value
            else:
                values[f"{finding.analyzer}.{finding.name}"] = finding.value
        elif finding.name != MIX:
            values[finding.name] = finding.value
    if "tools" in values and values["tools"] is not None:
        values[MIX] = as_table(mix)
    return values


def labelled_values(findings: Sequence[Finding], people: People) -> dict[str, Value]:
    """Findings as columns, with what people say in its place; `label.<name>` says who."""
    if not people:
        return values_of(findings)
    by = {f"{LABEL}.{f.name}": label.author for f in findings if (label := said_of(f, people)) is not None}
    return values_of(corrected(findings, people)) | by


def identity_of(batch: str, cell: CellState) -> dict[str, Value]:
    """The first columns of a cell."""
    row = cell.row
    trial = row.trial if row is not None else None
    return {
        "batch": batch,
        "task": cell.task.id,
        "dataset": cell.task.dataset,
        "family": cell.task.family,
        "profile": cell.profile,
        "attempt": cell.attempt,
        "trial": None if row is None else f"{row.job}/{row.name}",
        "outcome": str(cell.outcome),
        "reason": cell.reason,
        "agent": trial.agent if trial else None,
        "agent_version": trial.agent_version if trial else None,
        "model": trial.model if trial else None,
        "started_at": trial.started_at if trial else None,
        "simulated": trial.simulated if trial else None,
        "suspect": "; ".join(trial.suspect) if trial else None,
    }


def csv_line(values: Sequence[Any]) -> bytes:
    """One line of a CSV file; unknown is empty, text that a spreadsheet would take for a formula is quoted by '."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow([_shown(value) for value in values])
    return out.getvalue().encode(errors="replace")


def _shown(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e5 else f"{value:.2f}"
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value


class Spread(msgspec.Struct, frozen=True):
    """One measure over the trials of a profile. Of yes and no, the mean is the share of yes."""

    trials: int
    known: int
    mean: float | None = None
    median: float | None = None
    min: float | None = None
    max: float | None = None
    sum: float | None = None


class ProfileMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One profile: counts, rates (means over tasks), each measure, failure classes, tools.

    `per_success` are totals over all trials, failed ones included, by passed trials; None when a part is unknown.
    `flagged` trials touched a tripwire; `rate_without_flagged` leaves them out. `labelled` counts by measure the trials
    for which a person's word stands in the place of what was found.
    """

    planned: int
    measured: int
    passed: int
    coverage: float
    outcomes: dict[str, int]
    rate: float | None
    rate_all: float | None
    flagged: list[str]
    rate_without_flagged: float | None
    per_success: dict[str, float | None]
    superseded_trials: int
    superseded_cost_usd: float | None
    failure_classes: dict[str, int]
    tool_mix: dict[str, int]
    measures: dict[str, Spread]
    labelled: dict[str, int]


@dataclass
class Tally:
    """Counts the trials of one profile as they pass by."""

    trials: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    numbers: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    failures: Counter[str] = field(default_factory=Counter)
    mix: Counter[str] = field(default_factory=Counter)
    tasks: dict[tuple[str, str], list[tuple[Outcome, bool]]] = field(default_factory=lambda: defaultdict(list))
    flagged: list[str] = field(default_factory=list)
    labelled: Counter[str] = field(default_factory=Counter)
    started: int = 0

    def add(self, cell: CellState, values: Mapping[str, Value]) -> None:
        """Take one cell into account."""
        self.trials += 1
        self.outcomes[str(cell.outcome)] += 1
        self.started += cell.row is not None and cell.row.state != ReadState.HELD
        for name, value in values.items():
            if isinstance(value, bool | int | float):
                self.numbers[name].append(float(value))
        if isinstance(values.get("failure_class"), str):
            self.failures[str(values["failure_class"])] += 1
        self.labelled.update(n.removeprefix(f"{LABEL}.") for n in values if n.startswith(f"{LABEL}."))
        if isinstance(values.get(MIX), str):
            self.mix.update(msgspec.json.decode(str(values[MIX])))
        flagged = cell.row is not None and any(values.get(name) for name in TRIPWIRES)
        self.tasks[cell.task.dataset, cell.task.id].append((cell.outcome, flagged))
        if flagged and cell.row is not None:
            self.flagged.append(f"{cell.row.job}/{cell.row.name}")

    def metrics(self, again: Sequence[TrialRow]) -> ProfileMetrics:
        """What was counted; `again` are superseded trials of the same profile."""
        passed = self.outcomes[Outcome.PASSED]
        measured = passed + self.outcomes[Outcome.FAILED]
        rates = pass_rates(_counts(outcomes) for outcomes in self.tasks.values())
        clean = pass_rates(_counts([one for one in outcomes if not one[1]]) for outcomes in self.tasks.values())
        costs = [row.usage.cost_usd for row in again]
        known_costs = [cost for cost in costs if cost is not None]
        return ProfileMetrics(
            planned=self.trials,
            measured=measured,
            passed=passed,
            coverage=measured / self.trials if self.trials else 0.0,
            outcomes=dict(self.outcomes),
            rate=rates.rate,
            rate_all=rates.rate_all,
            flagged=self.flagged,
            rate_without_flagged=clean.rate,
            per_success={f"{name}_per_success": self._per_success(name, passed) for name in _PER_SUCCESS},
            superseded_trials=len(again),
            superseded_cost_usd=sum(known_costs) if len(known_costs) == len(costs) else None,
            failure_classes=dict(self.failures.most_common()),
            tool_mix=dict(self.mix.most_common()),
            measures={name: self.spread(name) for name in self._measured_names()},
            labelled=dict(self.labelled),
        )

    def _measured_names(self) -> list[str]:
        own = [measure.name for measure in MEASURES if measure.kind in ("yes_no", "count", "number")]
        return own + [name for name in self.numbers if name not in _KINDS]

    def _per_success(self, name: str, passed: int) -> float | None:
        values = self.numbers.get(name, [])
        return sum(values) / passed if passed and len(values) == self.started else None

    def spread(self, name: str) -> Spread:
        """One measure."""
        values = self.numbers.get(name, [])
        if not values:
            return Spread(self.trials, 0)
        total = sum(values)
        mean, median = total / len(values), statistics.median(values)
        return Spread(self.trials, len(values), mean, median, min(values), max(values), total)


def _counts(trials: Sequence[tuple[Outcome, bool]]) -> TaskCounts:
    """The trials of one task, each with whether it is flagged."""
    outcomes = [outcome for outcome, _ in trials]
    return TaskCounts(outcomes.count(Outcome.PASSED), sum(o.measured for o in outcomes), len(outcomes))


def summary_lines(profiles: Mapping[str, ProfileMetrics]) -> Iterable[bytes]:
    """metrics_summary.csv: a line for each profile and measure."""
    yield csv_line(SUMMARY_COLUMNS)
    for profile, metrics in profiles.items():
        for name, spread in metrics.measures.items():
            yield csv_line([profile, name, *msgspec.structs.astuple(spread)])
