"""`run_analysis`: from batches on disk to findings and tables. Reads each trial once, and only what changed."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from terminalbench.analytics.analyzers import ERROR, Loaded, load_analyzers, run_analyzer
from terminalbench.analytics.findings_cache import FindingsCache, tables_digest
from terminalbench.analytics.metrics import (
    ProfileMetrics,
    Tally,
    csv_line,
    detail_columns,
    identity_of,
    summary_lines,
    values_of,
)
from terminalbench.analytics.trial_files import NO_TRAJECTORY, TrialFiles, stamp_of
from terminalbench.analytics.views import Filter, Source, open_source, picked, selected
from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.files import encode_line, write_json, write_lines
from terminalbench.harbor.results import ReadState
from terminalbench.index.queries import BatchView, CellState, TrialRow
from terminalbench.index.scan import ForeignJobs
from terminalbench.index.store import open_index
from terminalbench.records import Finding, Outcome

_ODD = "oddities in the trajectory file"
_MILD = (_ODD, f"no findings about behaviour, {NO_TRAJECTORY},")
"""Good to know, but nothing that ought to be there is missing: not every agent writes a trajectory."""

type Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class AnalysisRequest:
    """What to analyse. `analyzers` come on top of those the batch declared; `import_root` is where they are found."""

    batches: tuple[Batch, ...]
    wanted: Filter = field(default_factory=Filter)
    output: Path | None = None
    analyzers: tuple[str, ...] = ()
    import_root: Path | None = None
    progress: Progress | None = None


@dataclass(frozen=True)
class AnalysisResult:
    """What was found and where it is written. `read` trials were analysed anew, `reused` came from the cache.

    `missing` says in a line each what could not be analysed and why; `notes` what is good to know.
    """

    output: Path
    written: tuple[Path, ...]
    batches: tuple[str, ...]
    planned: int
    analysed: int
    read: int
    reused: int
    profiles: dict[str, ProfileMetrics]
    missing: tuple[str, ...]
    notes: tuple[str, ...]
    views: tuple[BatchView, ...]

    @property
    def incomplete(self) -> bool:
        """Whether something that was planned could not be analysed."""
        return bool(self.missing)


@dataclass(frozen=True)
class Picked:
    """A batch with the cells that are analysed."""

    source: Source
    view: BatchView
    cells: list[CellState]

    @property
    def trials(self) -> list[TrialRow]:
        """The folders to read; a trial that was held never started."""
        return [cell.row for cell in self.cells if cell.row is not None and cell.row.state != ReadState.HELD]


def run_analysis(request: AnalysisRequest) -> AnalysisResult:
    """Analyse, write the tables, and say what is missing. Raises UserError when nothing is left to analyse."""
    chosen = pick(request.batches, request.wanted)
    analyzers = _analyzers(request, chosen)
    read = analyse(chosen, analyzers, request.progress)
    output = request.output or default_output(request.batches, request.wanted)
    tables = write_tables(chosen, analyzers, output, request.wanted)
    return AnalysisResult(
        output=output,
        written=tables.written,
        batches=tuple(part.view.batch for part in chosen),
        planned=sum(len(part.cells) for part in chosen),
        analysed=sum(len(part.trials) for part in chosen),
        read=read,
        reused=sum(len(part.trials) for part in chosen) - read,
        profiles=tables.profiles,
        missing=(*_not_there(chosen), *tables.problems),
        notes=(*_superseded(chosen), *tables.notes),
        views=tuple(part.view for part in chosen),
    )


def pick(batches: Sequence[Batch], wanted: Filter) -> list[Picked]:
    """The trials that are meant, batch by batch. Raises UserError when there is none."""
    chosen: list[Picked] = []
    sources = [open_source(batch) for batch in batches]
    views = [selected(source, wanted) for source in sources]
    # A limit is over all batches together: sampled as one list, then given back to each.
    everything = [cell for view in views for cell in view.cells]
    kept = {id(cell) for cell in picked(everything, wanted)}
    for source, view in zip(sources, views, strict=True):
        chosen.append(Picked(source, view, [cell for cell in view.cells if id(cell) in kept]))
    if not any(part.cells for part in chosen):
        where = ", ".join(str(source.batch.folder) for source in sources)
        how = f"no trial {wanted.only}" if wanted.only and everything else "no trial is left after filtering"
        raise UserError(how, where=where, hint="tbench analyze --list shows the trials")
    if not any(part.trials for part in chosen):
        where = ", ".join(str(source.batch.folder) for source in sources)
        raise UserError("nothing has run yet", where=where, hint="tbench run, or tbench resume")
    return chosen


def default_output(batches: Sequence[Batch], wanted: Filter) -> Path:
    """Where the tables go: the batch's analytics, or for several beside them; a selection apart from the whole."""
    first = batches[0]
    if isinstance(first, ForeignJobs) or len(batches) > 1:
        folder = first.folder.parent / "analytics"
    else:
        folder = first.analytics
    return folder if wanted.is_all else folder / "selection"


def _analyzers(request: AnalysisRequest, chosen: Sequence[Picked]) -> list[Loaded]:
    declared = [name for part in chosen for name in part.view.plan.analysis.get("analyzers") or ()]
    root = str(request.import_root) if request.import_root is not None else None
    if root is not None and root not in sys.path:
        sys.path.append(root)
    return load_analyzers(tuple(dict.fromkeys((*declared, *request.analyzers))))


def analyse(chosen: Sequence[Picked], analyzers: Sequence[Loaded], progress: Progress | None = None) -> int:
    """Bring the findings of the chosen trials up to date; how many trials had to be read."""
    total = sum(len(part.trials) for part in chosen)
    done = read = 0
    for part in chosen:
        with open_index(part.source.root) as connection:
            cache = FindingsCache(connection, _key(part.source))
            for row in part.trials:
                read += _analyse_trial(cache, trial_files(part.source, row), row, analyzers)
                done += 1
                if progress is not None:
                    progress(done, total)
            cache.flush()
            cache.forget_gone()
    return read


def _analyse_trial(cache: FindingsCache, trial: TrialFiles, row: TrialRow, analyzers: Sequence[Loaded]) -> bool:
    kept = cache.kept(row.job, row.name)
    stale = []
    stamps: dict[tuple[str, ...], str] = {}
    for loaded in analyzers:
        if loaded.targets not in stamps:
            stamps[loaded.targets] = f"{tables_digest()}|{stamp_of(trial, loaded.targets)}"
        stamp = stamps[loaded.targets]
        found = kept.get(loaded.name)
        if found is None or (found.version, found.stamp) != (loaded.version, stamp):
            stale.append((loaded, stamp))
    for loaded, stamp in stale:
        findings = run_analyzer(loaded, trial, trial.story.trajectory)
        cache.put(row.job, row.name, loaded.name, loaded.version, stamp, findings)
    return bool(stale)


def trial_files(source: Source, row: TrialRow) -> TrialFiles:
    """What the analyzers see of a trial."""
    folder = source.batch.runs / row.job / row.name
    if row.superseded:
        folder = source.batch.superseded / row.job / row.name
    return TrialFiles(
        key=f"{row.job}/{row.name}",
        folder=folder,
        batch=source.batch.folder,
        record=row.trial,
        usage=row.usage,
        reason=row.reason,
        agent=row.trial.agent if row.trial is not None else None,
    )


def read_findings(part: Picked, analyzers: Sequence[Loaded]) -> Iterator[tuple[CellState, list[Finding]]]:
    """Each cell with its findings, from the cache; none for a cell that never ran."""
    names = [loaded.name for loaded in analyzers]
    with open_index(part.source.root) as connection:
        cache = FindingsCache(connection, _key(part.source))
        for cell in part.cells:
            ran = cell.row is not None and cell.row.state != ReadState.HELD
            yield cell, cache.read(cell.row.job, cell.row.name, names) if ran and cell.row is not None else []


def _key(source: Source) -> str:
    return source.batch.folder.relative_to(source.root).as_posix()


@dataclass(frozen=True)
class _Tables:
    written: tuple[Path, ...]
    profiles: dict[str, ProfileMetrics]
    problems: tuple[str, ...]
    notes: tuple[str, ...]


def write_tables(chosen: Sequence[Picked], analyzers: Sequence[Loaded], output: Path, wanted: Filter) -> _Tables:
    """Write findings.jsonl, metrics_detail.csv, metrics_summary.csv and aggregate_metrics.json from the cache."""
    tallies: dict[str, Tally] = {}
    problems: Counter[str] = Counter()
    further: dict[str, None] = {}

    def findings() -> Iterator[bytes]:
        for part in chosen:
            for cell, found in read_findings(part, analyzers):
                values = values_of(found)
                further.update(dict.fromkeys(name for name in values if "." in name))
                tallies.setdefault(cell.profile, Tally()).add(cell, values)
                _note_problems(problems, found)
                yield from map(encode_line, found)

    def details() -> Iterator[bytes]:
        columns = detail_columns(further)
        yield csv_line(columns)
        for part in chosen:
            for cell, found in read_findings(part, analyzers):
                values = identity_of(part.view.batch, cell) | values_of(found)
                yield csv_line([values.get(name) for name in columns])

    paths = [
        output / name
        for name in ("findings.jsonl", "metrics_detail.csv", "metrics_summary.csv", "aggregate_metrics.json")
    ]
    write_lines(paths[0], findings())
    write_lines(paths[1], details())
    views = [part.view for part in chosen]
    profiles = {profile: tally.metrics(views, profile) for profile, tally in tallies.items()}
    write_lines(paths[2], summary_lines(profiles))
    write_json(paths[3], _aggregate(chosen, analyzers, wanted, profiles))
    said = [(what, f"{what} in {_trials(count)}") for what, count in problems.most_common()]
    mild = [line for what, line in said if what in _MILD]
    return _Tables(tuple(paths), profiles, tuple(line for _, line in said if line not in mild), tuple(mild))


def _aggregate(
    chosen: Sequence[Picked], analyzers: Sequence[Loaded], wanted: Filter, profiles: dict[str, ProfileMetrics]
) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "batches": [part.view.batch for part in chosen],
        "selection": None if wanted.is_all else wanted,
        "analyzers": {loaded.name: loaded.version for loaded in analyzers},
        "missing": _not_there(chosen),
        "profiles": profiles,
    }


def _note_problems(problems: Counter[str], found: Sequence[Finding]) -> None:
    for finding in found:
        if finding.name == ERROR:
            problems[f'analyzer "{finding.analyzer}" failed ({finding.reason})'] += 1
        elif finding.name == "steps" and finding.value is None:
            problems[f"no findings about behaviour, {finding.reason},"] += 1
        elif finding.name == "trajectory_problems" and finding.value:
            problems[_ODD] += 1


def _not_there(chosen: Sequence[Picked]) -> list[str]:
    """What was planned and cannot be analysed."""
    lines: list[str] = []
    for part in chosen:
        gone = Counter(_absence(cell) for cell in part.cells if _absence(cell))
        lines += [f"{part.view.batch}: {_trials(count)} {what}" for what, count in gone.most_common()]
    return lines


def _superseded(chosen: Sequence[Picked]) -> list[str]:
    found = [(part.view.batch, len(part.view.superseded)) for part in chosen if part.view.superseded]
    return [f"{batch}: {_trials(n)} superseded: their cost is counted, they are not analysed" for batch, n in found]


def _absence(cell: CellState) -> str:
    if cell.row is None or cell.row.state == ReadState.HELD:
        return f"not run ({cell.reason})" if cell.reason else "not run"
    if cell.row.trial is None:
        return f"{'unreadable' if cell.outcome is Outcome.ERRORED else 'unfinished'} ({cell.row.reason})"
    return ""


def _trials(count: int) -> str:
    return f"{count} trial" if count == 1 else f"{count} trials"
