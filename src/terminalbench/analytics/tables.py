"""The files of an analysis: findings, metrics, the comparison and its tests. Each is replaced at once or not at all."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.analytics.findings.analyzers import ERROR, Loaded
from terminalbench.analytics.findings.trial_files import NO_TRAJECTORY
from terminalbench.analytics.labels import UNFIT, Labels, read_labels
from terminalbench.analytics.metrics import (
    ProfileMetrics,
    Tally,
    csv_line,
    detail_columns,
    identity_of,
    labelled_values,
    summary_lines,
)
from terminalbench.analytics.model import Comparison, Contrast, Metric
from terminalbench.analytics.selection import Filter, Picked, ran, read_findings
from terminalbench.analytics.settings import profile_names
from terminalbench.errors import TbenchError
from terminalbench.files import encode_json, encode_line, read_json, write_json, write_lines
from terminalbench.index.queries import CellState
from terminalbench.index.results import FINDINGS_FILE
from terminalbench.records import Finding, Outcome
from terminalbench.text.numbers import plural

DETAIL, SUMMARY = "metrics_detail.csv", "metrics_summary.csv"
AGGREGATE, COMPARISON, TESTS = "aggregate_metrics.json", "comparison.json", "statistical_tests.json"
_ODD = "oddities in the trajectory file"
_MILD = (_ODD, f"no findings about behaviour, {NO_TRAJECTORY},")
"""Good to know, but nothing that ought to be there is missing: not every agent writes a trajectory."""


@dataclass(frozen=True)
class Tables:
    """What was written, the summary of each profile, and what the findings say is missing or odd."""

    written: tuple[Path, ...]
    profiles: dict[str, ProfileMetrics]
    missing: tuple[str, ...]
    notes: tuple[str, ...]


def write_tables(
    chosen: Sequence[Picked], analyzers: Sequence[Loaded], output: Path, wanted: Filter, judged: Sequence[Finding] = ()
) -> Tables:
    """Write the findings and the metrics, from the cache; `judged`, the judge's findings, after the others."""
    names = profile_names([part.view for part in chosen])
    tallies: dict[str, Tally] = {}
    problems: Counter[str] = Counter()
    further: dict[str, None] = {}
    labels = {part.view.batch: read_labels(part.source.batch.analytics) for part in chosen}
    people = {batch: found.current() for batch, found in labels.items()}

    def findings() -> Iterator[Finding]:
        for part in chosen:
            for cell, found in read_findings(part, analyzers):
                values = labelled_values(found, people[part.view.batch])
                further.update(dict.fromkeys(name for name in values if "." in name))
                tallies.setdefault(names[part.view.batch, cell.profile], Tally()).add(cell, values)
                _note_problems(problems, found)
                yield from found

    def details() -> Iterator[bytes]:
        columns = detail_columns(further)
        yield csv_line(columns)
        for part in chosen:
            for cell, found in read_findings(part, analyzers):
                values = identity_of(part.view.batch, cell) | labelled_values(found, people[part.view.batch])
                yield csv_line([values.get(name) for name in columns])

    write_findings(output, findings(), judged)
    write_lines(output / DETAIL, details())
    profiles = {
        name: tally.metrics(
            [r for p in chosen for r in p.view.superseded if names.get((p.view.batch, r.profile)) == name]
        )
        for name, tally in tallies.items()
    }
    write_lines(output / SUMMARY, summary_lines(profiles))
    write_json(output / AGGREGATE, _aggregate(chosen, analyzers, wanted, profiles))
    said = [(what, f"{what} in {trials_text(count)}") for what, count in problems.most_common()]
    mild = [line for what, line in said if what in _MILD]
    return Tables(
        written=tuple(output / name for name in (FINDINGS_FILE, DETAIL, SUMMARY, AGGREGATE)),
        profiles=profiles,
        missing=tuple(line for _, line in said if line not in mild),
        notes=(*mild, *_label_notes(labels, profiles)),
    )


def _label_notes(labels: Mapping[str, Labels], profiles: Mapping[str, ProfileMetrics]) -> list[str]:
    """What of the tables is a person's word, and which labels do not count."""
    said = sum((Counter(metrics.labelled) for metrics in profiles.values()), Counter[str]())
    notes = [f"{name} is a person's word in {trials_text(count)}" for name, count in said.most_common()]
    odd = {batch: found.unreadable for batch, found in labels.items() if found.unreadable}
    return notes + [f"{batch}: {count} lines of labels.jsonl do not count ({UNFIT})" for batch, count in odd.items()]


def write_findings(output: Path, found: Iterable[Finding], judged: Sequence[Finding]) -> None:
    """Write findings.jsonl."""

    def lines() -> Iterator[bytes]:
        yield from map(encode_line, found)
        yield from map(encode_line, judged)

    write_lines(output / FINDINGS_FILE, lines())


def cached_findings(chosen: Sequence[Picked], analyzers: Sequence[Loaded]) -> Iterator[Finding]:
    """Every finding in the cache about the chosen trials."""
    for part in chosen:
        for _, found in read_findings(part, analyzers):
            yield from found


def write_comparison(comparisons: Mapping[Metric, Comparison], output: Path) -> tuple[Path, ...]:
    """Write comparison.json, about passing, and statistical_tests.json, every contrast in every metric."""
    write_json(output / COMPARISON, comparisons["pass"])
    tests = [_test(contrast) for comparison in comparisons.values() for contrast in comparison.contrasts]
    first = comparisons["pass"]
    document = {"schema_version": 1, "batches": first.batches, "alpha": first.alpha, "departures": first.departures}
    write_json(output / TESTS, document | {"tests": tests})
    return output / COMPARISON, output / TESTS


def about_others(output: Path, chosen: Sequence[Picked], wanted: Filter) -> bool:
    """Whether the tables that are there were made of other trials than these."""
    try:
        kept = read_json(output / AGGREGATE)
    except (OSError, TbenchError):
        return False
    asked = msgspec.json.decode(encode_json(_identity(chosen, wanted)))
    return not isinstance(kept, dict) or any(kept.get(key) != value for key, value in asked.items())


def remove_comparison(output: Path) -> None:
    """Take away the comparison of an earlier analysis of other trials."""
    for name in (COMPARISON, TESTS):
        (output / name).unlink(missing_ok=True)


def _test(contrast: Contrast) -> dict[str, Any]:
    return {
        "new": contrast.new,
        "old": contrast.old,
        "metric": contrast.metric,
        "test": f"sign-flip permutation of the differences by {contrast.unit}, two-sided",
        "adjustment": "Holm, over the contrasts of this metric",
        "rule": contrast.rule,
        "p": contrast.estimate.p,
        "p_adjusted": contrast.p_adjusted,
        "verdict": contrast.verdict,
        "smallest_detectable": contrast.smallest_detectable,
        "estimate": contrast.estimate,
        "other_way": contrast.other_way,
        "sentence": contrast.sentence,
    }


def not_there(chosen: Sequence[Picked]) -> list[str]:
    """What was planned and cannot be analysed."""
    lines: list[str] = []
    for part in chosen:
        gone = Counter(what for cell in part.cells if (what := _absence(cell)))
        lines += [f"{part.view.batch}: {trials_text(count)} {what}" for what, count in gone.most_common()]
    return lines


def superseded_notes(chosen: Sequence[Picked]) -> list[str]:
    """What was run again, or belongs to no planned cell."""
    found = [(part.view.batch, len(part.view.superseded)) for part in chosen if part.view.superseded]
    return [f"{batch}: {trials_text(n)} superseded: their cost is counted, they are not analysed" for batch, n in found]


def trials_text(count: int) -> str:
    """A number of trials."""
    return plural(count, "trial")


def _aggregate(
    chosen: Sequence[Picked], analyzers: Sequence[Loaded], wanted: Filter, profiles: dict[str, ProfileMetrics]
) -> dict[str, Any]:
    return {
        "schema_version": 1,
        **_identity(chosen, wanted),
        "analyzers": {loaded.name: loaded.version for loaded in analyzers},
        "missing": not_there(chosen),
        "profiles": profiles,
    }


def _identity(chosen: Sequence[Picked], wanted: Filter) -> dict[str, Any]:
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
    if not ran(cell) or cell.row is None:
        return f"not run ({cell.reason})" if cell.reason else "not run"
    if cell.row.trial is None:
        what = "unreadable" if cell.outcome is Outcome.ERRORED else "unfinished"
        named = f"{cell.row.folder}: " if cell.outcome is Outcome.ERRORED else ""
        return f"{what} ({named}{cell.row.reason})"
    return ""
