"""The measures as tables: a row a trial, a summary a profile; written with the findings they are made of.

Each file is replaced at once or not at all. Nothing keeps the findings of all trials in memory.
"""

import csv
import io
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.analytics.findings.analyzers import ERROR, MEASURES, MIX, NAMES, TRIPWIRES, LoadedAnalyzer
from terminalbench.analytics.findings.trial import as_table
from terminalbench.analytics.findings.trial_files import NO_TRAJECTORY, UNTOLD, Value
from terminalbench.analytics.labels import ANALYZER as LABEL
from terminalbench.analytics.labels import Labels, People, corrected, read_labels, said_of, unfit_lines
from terminalbench.analytics.model import Comparison
from terminalbench.analytics.selection import Filter, SelectedBatch, ran
from terminalbench.analytics.settings import profile_names
from terminalbench.decode import decode
from terminalbench.errors import TbenchError
from terminalbench.files import write_lines
from terminalbench.index.queries import CellState, TrialRow
from terminalbench.index.results import FINDINGS_FILE
from terminalbench.json_files import encode_json, encode_line, read_json, write_json
from terminalbench.records.counts import pass_rates
from terminalbench.records.trial import Finding, Outcome
from terminalbench.records.values import total
from terminalbench.text.numbers import plural

DETAIL, SUMMARY, AGGREGATE = "metrics_detail.csv", "metrics_summary.csv", "aggregate_metrics.json"
_OF_TRIAL = ("agent", "agent_version", "model", "started_at", "simulated")
IDENTITY = (
    "batch", "task", "dataset", "family", "profile", "attempt", "trial", "outcome", "reason", *_OF_TRIAL, "suspect",
)  # fmt: skip
"""The first columns of metrics_detail.csv; the measures follow, then `<analyzer>.<finding>` of further analyzers."""
SUMMARY_COLUMNS = ("profile", "measure", "trials", "known", "mean", "median", "min", "max", "sum")
_PER_SUCCESS = ("cost_usd", "tokens", "wall_sec", "agent_steps")
_BUILT_IN = ("trial", "behaviour", "tripwires", "failure")
_KINDS = {measure.name: measure.kind for measure in MEASURES}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_ODD = "oddities in the trajectory file"
_MILD = (_ODD, *(f"no findings about behaviour, {why}," for why in (NO_TRAJECTORY, UNTOLD)))
"""Good to know, but nothing that ought to be there is missing: not every agent writes a trajectory."""


def _values_of(findings: Iterable[Finding]) -> dict[str, Value]:
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


def _labelled_values(findings: Sequence[Finding], people: People) -> dict[str, Value]:
    """Findings as columns, with what people say in its place; `label.<name>` says who."""
    if not people:
        return _values_of(findings)
    by = {f"{LABEL}.{f.name}": label.author for f in findings if (label := said_of(f, people)) is not None}
    return _values_of(corrected(findings, people)) | by


def _identity_of(batch: str, cell: CellState) -> dict[str, Value]:
    """The first columns of a cell."""
    row, task = cell.row, cell.task
    trial = row.trial if row is not None else None
    planned = (batch, task.id, task.dataset, task.family, cell.profile, cell.attempt)
    ended = (row.key if row is not None else None, cell.state, cell.reason)
    told = [getattr(trial, name, None) for name in _OF_TRIAL]
    suspect = "; ".join(trial.suspect) if trial is not None else None
    return dict(zip(IDENTITY, (*planned, *ended, *told, suspect), strict=True))


def _csv_line(values: Sequence[Any]) -> bytes:
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
class _ProfileTally:
    """Counts the trials of one profile as they pass by."""

    cells: list[CellState] = field(default_factory=list)
    flagged: list[str] = field(default_factory=list)
    clean: list[CellState] = field(default_factory=list)
    numbers: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    failures: Counter[str] = field(default_factory=Counter)
    mix: Counter[str] = field(default_factory=Counter)
    labelled: Counter[str] = field(default_factory=Counter)

    def add(self, cell: CellState, values: Mapping[str, Value]) -> None:
        """Take one cell into account."""
        self.cells.append(cell)
        for name, value in values.items():
            if isinstance(value, bool | int | float):
                self.numbers[name].append(float(value))
        if isinstance(values.get("failure_class"), str):
            self.failures[str(values["failure_class"])] += 1
        self.labelled.update(n.removeprefix(f"{LABEL}.") for n in values if n.startswith(f"{LABEL}."))
        if isinstance(values.get(MIX), str):
            self.mix.update(decode(str(values[MIX])))
        if cell.row is not None and any(values.get(name) for name in TRIPWIRES):
            self.flagged.append(cell.row.key)
        else:
            self.clean.append(cell)

    def metrics(self, again: Sequence[TrialRow]) -> ProfileMetrics:
        """Return what was counted; `again` are superseded trials of the same profile."""
        outcomes = Counter(cell.state for cell in self.cells)
        measured = sum(cell.measured for cell in self.cells)
        rates = pass_rates(self.cells)
        costs = [row.usage.cost_usd for row in again]
        own = [measure.name for measure in MEASURES if measure.kind in ("yes_no", "count", "number")]
        further = [name for name in self.numbers if name not in _KINDS]
        return ProfileMetrics(
            planned=len(self.cells),
            measured=measured,
            passed=outcomes[Outcome.PASSED],
            coverage=measured / len(self.cells),
            outcomes=dict(outcomes),
            rate=rates.rate,
            rate_all=rates.rate_all,
            flagged=self.flagged,
            rate_without_flagged=pass_rates(self.clean).rate,
            per_success={f"{name}_per_success": self._per_success(name) for name in _PER_SUCCESS},
            superseded_trials=len(again),
            superseded_cost_usd=total(costs) if costs else 0.0,
            failure_classes=dict(self.failures.most_common()),
            tool_mix=dict(self.mix.most_common()),
            measures={name: self._spread(name) for name in (*own, *further)},
            labelled=dict(self.labelled),
        )

    def _per_success(self, name: str) -> float | None:
        values = self.numbers.get(name, [])
        passed = sum(cell.outcome is Outcome.PASSED for cell in self.cells)
        return sum(values) / passed if passed and len(values) == sum(map(ran, self.cells)) else None

    def _spread(self, name: str) -> Spread:
        values = self.numbers.get(name, [])
        if not values:
            return Spread(len(self.cells), 0)
        mean, median = sum(values) / len(values), statistics.median(values)
        return Spread(len(self.cells), len(values), mean, median, min(values), max(values), sum(values))


def _summary_lines(profiles: Mapping[str, ProfileMetrics]) -> Iterable[bytes]:
    """metrics_summary.csv: a line for each profile and measure."""
    yield _csv_line(SUMMARY_COLUMNS)
    for profile, metrics in profiles.items():
        for name, spread in metrics.measures.items():
            yield _csv_line([profile, name, *msgspec.structs.astuple(spread)])


@dataclass(frozen=True)
class MetricTables:
    """What was written, the summary of each profile, what is missing or odd, and the comparison if there is one."""

    written: tuple[Path, ...] = ()
    profiles: dict[str, ProfileMetrics] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    comparison: Comparison | None = None


def write_tables(
    chosen: Sequence[SelectedBatch],
    analyzers: Sequence[LoadedAnalyzer],
    output: Path,
    wanted: Filter,
    judged: Sequence[Finding] = (),
) -> MetricTables:
    """Write the findings and the metrics, from the cache; `judged`, the judge's findings, after the others."""
    names = profile_names([part.view for part in chosen])
    tallies: dict[str, _ProfileTally] = {}
    problems: Counter[str] = Counter()
    further: dict[str, None] = {}
    labels = {part.view.batch: read_labels(part.batch.analytics) for part in chosen}
    people = {batch: found.current() for batch, found in labels.items()}

    def findings() -> Iterator[Finding]:
        for part in chosen:
            for cell, found in part.findings(analyzers):
                values = _labelled_values(found, people[part.view.batch])
                further.update(dict.fromkeys(name for name in values if "." in name))
                tallies.setdefault(names[part.view.batch, cell.profile], _ProfileTally()).add(cell, values)
                _note_problems(problems, found)
                yield from found

    def details() -> Iterator[bytes]:
        columns = [*IDENTITY, *NAMES, *further]
        yield _csv_line(columns)
        for part in chosen:
            for cell, found in part.findings(analyzers):
                values = _identity_of(part.view.batch, cell) | _labelled_values(found, people[part.view.batch])
                yield _csv_line([values.get(name) for name in columns])

    write_findings(output, findings(), judged)
    write_lines(output / DETAIL, details())
    profiles = {
        name: tally.metrics(
            [r for p in chosen for r in p.view.superseded if names.get((p.view.batch, r.profile)) == name]
        )
        for name, tally in tallies.items()
    }
    write_lines(output / SUMMARY, _summary_lines(profiles))
    document = {
        "schema_version": 1,
        **_identity(chosen, wanted),
        "analyzers": {loaded.name: loaded.version for loaded in analyzers},
        "missing": not_there(chosen),
        "profiles": profiles,
    }
    write_json(output / AGGREGATE, document)
    said = [(what, f"{what} in {plural(count, 'trial')}") for what, count in problems.most_common()]
    mild = [line for what, line in said if what in _MILD]
    return MetricTables(
        written=tuple(output / name for name in (FINDINGS_FILE, DETAIL, SUMMARY, AGGREGATE)),
        profiles=profiles,
        missing=tuple(line for _, line in said if line not in mild),
        notes=(*mild, *_label_notes(labels, profiles)),
    )


def _label_notes(labels: Mapping[str, Labels], profiles: Mapping[str, ProfileMetrics]) -> list[str]:
    """Return what of the tables is a person's word, and which labels do not count."""
    said = sum((Counter(metrics.labelled) for metrics in profiles.values()), Counter[str]())
    notes = [f"{name} was labelled by a person in {plural(count, 'trial')}" for name, count in said.most_common()]
    odd = {batch: found.unreadable for batch, found in labels.items() if found.unreadable}
    return notes + [f"{batch}: {unfit_lines(count)}" for batch, count in odd.items()]


def write_findings(output: Path, found: Iterable[Finding], judged: Sequence[Finding]) -> None:
    """Write findings.jsonl."""
    write_lines(output / FINDINGS_FILE, map(encode_line, chain(found, judged)))


def cached_findings(chosen: Sequence[SelectedBatch], analyzers: Sequence[LoadedAnalyzer]) -> Iterator[Finding]:
    """Every finding in the cache about the chosen trials."""
    return (finding for part in chosen for _, found in part.findings(analyzers) for finding in found)


def about_others(output: Path, chosen: Sequence[SelectedBatch], wanted: Filter) -> bool:
    """Return whether the tables that are there were made of other trials than these."""
    try:
        kept = read_json(output / AGGREGATE)
    except (OSError, TbenchError):
        return False
    asked = decode(encode_json(_identity(chosen, wanted)))
    return not isinstance(kept, dict) or any(kept.get(key) != value for key, value in asked.items())


def not_there(chosen: Sequence[SelectedBatch]) -> list[str]:
    """Return what was planned and cannot be analysed."""
    lines: list[str] = []
    for part in chosen:
        gone = Counter(what for cell in part.cells if (what := _absence(cell)))
        lines += [f"{part.view.batch}: {plural(count, 'trial')} {what}" for what, count in gone.most_common()]
    return lines


def superseded_notes(chosen: Sequence[SelectedBatch]) -> list[str]:
    """Return what was run again, or belongs to no planned cell."""
    found = [(part.view.batch, len(part.view.superseded)) for part in chosen if part.view.superseded]
    return [
        f"{batch}: {plural(n, 'trial')} superseded: their cost is counted, they are not analysed" for batch, n in found
    ]


def _identity(chosen: Sequence[SelectedBatch], wanted: Filter) -> dict[str, Any]:
    return {"batches": [part.view.batch for part in chosen], "selection": None if wanted.is_all else wanted}


def _note_problems(problems: Counter[str], found: Sequence[Finding]) -> None:
    for finding in found:
        if finding.name == ERROR:
            problems[f'analyzer "{finding.analyzer}" failed ({finding.reason})'] += 1
        elif finding.name == "steps" and finding.value is None:
            problems[f"no findings about behaviour, {finding.reason},"] += 1
        elif finding.name == "trajectory_problems" and finding.value:
            problems[_ODD] += 1


def _absence(cell: CellState) -> str:
    if cell.running:
        return f"still {cell.state}"
    if not ran(cell) or cell.row is None:
        return f"not run ({cell.reason})" if cell.reason else "not run"
    if cell.row.trial is None:
        return f"{'unreadable' if cell.row.unreadable else 'unfinished'} ({cell.row.why})"
    return ""
