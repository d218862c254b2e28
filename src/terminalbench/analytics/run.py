"""`run_analysis`: from batches on disk to findings, metrics and a comparison. Reads only what changed."""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, get_args

import msgspec

from terminalbench.analytics import metrics
from terminalbench.analytics.findings.analyzers import (
    FindingsCache,
    LoadedAnalyzer,
    load_analyzers,
    rules_digest,
    run_analyzer,
    without_secrets,
)
from terminalbench.analytics.findings.deciding import story_of_failure
from terminalbench.analytics.findings.failure import FailureAnalyzer
from terminalbench.analytics.findings.trial_files import TrialFiles, stamp_of
from terminalbench.analytics.judge.output import forget_others, kept_findings, refresh_findings
from terminalbench.analytics.judge.request import JudgeAsk, JudgeResult, request_of
from terminalbench.analytics.model import Comparison, Metric
from terminalbench.analytics.pool import unpooled
from terminalbench.analytics.selection import Filter, SelectedBatch, analytics_of, pick, trial_keys
from terminalbench.analytics.settings import ComparisonRequest, ComparisonSettings, settings_of
from terminalbench.errors import TbenchError, UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.tables import AnalysisTable
from terminalbench.index.queries import BatchView
from terminalbench.index.store import open_index
from terminalbench.json_files import read_json, write_json
from terminalbench.live.processes import resume_places
from terminalbench.records.trial import Finding

COMPARISON, TESTS = "comparison.json", "statistical_tests.json"
_OTHERS = "the tables and the report there cover other trials or another question, and are not changed"
type Progress = Callable[[int, int], None]
_METRICS: tuple[Metric, ...] = get_args(Metric.__value__)


@dataclass(frozen=True)
class AnalysisRequest:
    """What to analyse.

    `compare` is (new, old); without it the declared contrasts are computed. `analyzers` come on top of those the batch
    declared, `import_root` is where they are found. `analysis` is the `[analysis]` table of the file as it is now.
    `judge` asks a model too, with the variables of `env_files`; with `judge_only` nothing else is written anew.
    """

    batches: tuple[Batch, ...]
    wanted: Filter = field(default_factory=Filter)
    output: Path | None = None
    compare: tuple[str, str] | None = None
    analyzers: tuple[str, ...] = ()
    import_root: Path | None = None
    env_files: tuple[Path, ...] = ()
    analysis: AnalysisTable | None = None
    judge: JudgeAsk | None = None
    judge_only: bool = False
    progress: Progress | None = field(default=None, compare=False)


@dataclass(frozen=True, kw_only=True)
class AnalysisResult(metrics.MetricTables):
    """What was found and where it is written. `read` trials were analysed anew, `reused` came from the cache.

    `missing` says in a line each what could not be analysed and why; `notes` what is good to know. `comparison` is None
    for a sample, and where only the judge was asked and the one on disk is about other trials or another question.
    `judged` is None when no model was asked; `judge_error` says why a model could not be asked at all.
    """

    output: Path
    planned: int
    analysed: int
    read: int
    views: tuple[BatchView, ...]
    folders: tuple[Batch, ...]
    judged: JudgeResult | None = None
    judge_error: TbenchError | None = None

    @property
    def reused(self) -> int:
        """Trials whose findings were in the cache."""
        return self.analysed - self.read

    @property
    def incomplete(self) -> bool:
        """Return whether something that was planned could not be analysed, or not judged although a model could
        have."""
        return bool(self.missing) or (self.judged is not None and self.judged.incomplete)


def run_analysis(request: AnalysisRequest) -> AnalysisResult:
    """Analyse, write the tables, and say what is missing. Raises UserError when nothing is left to analyse."""
    chosen = pick(request.batches, request.wanted)
    analyzers = _analyzers(request, chosen)
    settings = _settings(chosen, request)  # an unknown profile is found before anything is read
    output = request.output or default_output(request.batches, request.wanted, request.compare)
    read = 0 if request.judge_only else analyse(chosen, analyzers, request.progress)
    if request.judge_only:
        made = _kept(chosen, request.wanted, settings, output)
    else:
        made = _written(chosen, analyzers, request.wanted, settings, output)
    judged, failed = _judged(chosen, request, output)
    if judged is not None and request.judge_only:
        refresh_findings(output, _batches(chosen))
    elif judged is not None:
        metrics.write_findings(output, metrics.cached_findings(chosen, analyzers), _said_before(chosen, output))
    missing = (*metrics.not_there(chosen), *made.missing)
    notes = (*_left_out(request.batches, chosen), *metrics.superseded_notes(chosen), *made.notes)
    return AnalysisResult(
        **vars(replace(made, missing=missing, notes=notes)),
        output=output,
        planned=sum(len(part.cells) for part in chosen),
        analysed=sum(len(part.trials) for part in chosen),
        read=read,
        views=tuple(part.view for part in chosen),
        folders=tuple(_batches(chosen)),
        judged=judged,
        judge_error=failed,
    )


def default_output(batches: Sequence[Batch], wanted: Filter, compare: tuple[str, str] | None = None) -> Path:
    """Return where the tables go: the batch's analytics, or for several beside them.

    A selection goes apart from the whole, and a pair that was asked for apart from what is declared.
    """
    folder = analytics_of(batches)
    folder = folder if wanted.is_all else folder / "selection"
    return folder if compare is None else folder / re.sub(r"[^\w.@+-]", "_", f"{compare[0]}-vs-{compare[1]}")


def _analyzers(request: AnalysisRequest, chosen: Sequence[SelectedBatch]) -> list[LoadedAnalyzer]:
    declared = [name for part in chosen for name in part.view.plan.analysis.analyzers]
    root = str(request.import_root) if request.import_root is not None else None
    if root is not None and root not in sys.path:
        sys.path.append(root)
    return load_analyzers(tuple(dict.fromkeys((*declared, *request.analyzers))))


def _settings(chosen: Sequence[SelectedBatch], request: AnalysisRequest) -> dict[Metric, ComparisonSettings]:
    """Return what is compared, in every metric."""
    pairs = (request.compare,) if request.compare is not None else ()
    views = [part.view for part in chosen]
    places = resume_places(_batches(chosen), views)
    alone = unpooled(_batches(chosen))
    asked = settings_of(
        views, ComparisonRequest(contrasts=pairs, analysis=request.analysis, places=places, departures=alone)
    )
    return {metric: msgspec.structs.replace(asked, metric=metric) for metric in _METRICS}


def _left_out(batches: Sequence[Batch], chosen: Sequence[SelectedBatch]) -> list[str]:
    """The batches that have none of what was picked."""
    there = _batches(chosen)
    gone = ["/".join(batch.folder.parts[-2:]) for batch in batches if batch not in there]
    return [f"{name}: left out, it has none of the picked tasks and profiles" for name in gone]


def _written(
    chosen: Sequence[SelectedBatch],
    analyzers: Sequence[LoadedAnalyzer],
    wanted: Filter,
    settings: Mapping[Metric, ComparisonSettings],
    output: Path,
) -> metrics.MetricTables:
    """Write everything but what the judge says."""
    notes = [] if wanted.is_all else forget_others(output, trial_keys(chosen))
    made = metrics.write_tables(chosen, analyzers, output, wanted, _said_before(chosen, output))
    files = (output / COMPARISON, output / TESTS)
    if wanted.is_sample:
        for path in files:
            path.unlink(missing_ok=True)
        notes.append("trials selected by outcome or at random are not compared")
        return replace(made, notes=(*notes, *made.notes))
    compared = _compared(chosen, settings)
    write_json(files[0], compared["pass"])
    write_json(files[1], _tests(compared))
    return replace(made, comparison=compared["pass"], written=(*made.written, *files), notes=(*notes, *made.notes))


def _tests(compared: Mapping[Metric, Comparison]) -> dict[str, Any]:
    """statistical_tests.json: every contrast in every metric."""
    first = compared["pass"]
    tests = [
        {
            **{name: getattr(contrast, name) for name in ("new", "old", "metric", "rule", "p_adjusted", "verdict")},
            "test": f"sign-flip permutation of the differences by {contrast.unit}, two-sided",
            "adjustment": "Holm, over the contrasts of this metric",
            "p": contrast.estimate.p,
            "smallest_detectable": contrast.smallest_detectable,
            "estimate": contrast.estimate,
            "other_way": contrast.other_way,
            "sentence": contrast.sentence,
        }
        for comparison in compared.values()
        for contrast in comparison.contrasts
    ]
    document = {"schema_version": 1, "batches": first.batches, "alpha": first.alpha, "departures": first.departures}
    return document | {"tests": tests}


def _said_before(chosen: Sequence[SelectedBatch], output: Path) -> list[Finding]:
    """Return what the judge said of the chosen trials in an earlier run into the same folder, and what people say of
    them."""
    return list(kept_findings(output, _batches(chosen), trial_keys(chosen)))


def _batches(chosen: Sequence[SelectedBatch]) -> list[Batch]:
    return [part.batch for part in chosen]


def _kept(
    chosen: Sequence[SelectedBatch], wanted: Filter, settings: Mapping[Metric, ComparisonSettings], output: Path
) -> metrics.MetricTables:
    """Write nothing: the comparison on disk, when it is what these trials and this question give now."""
    try:
        kept: Comparison | None = read_json(output / COMPARISON, Comparison)
    except FileNotFoundError:
        return metrics.MetricTables(notes=(_OTHERS,) if metrics.about_others(output, chosen, wanted) else ())
    except (OSError, TbenchError):
        kept = None
    now = _compared(chosen, {"pass": settings["pass"]})["pass"]
    said = msgspec.structs.replace(kept, repeat=now.repeat) if kept is not None else None  # it depends on where one is
    return (
        metrics.MetricTables(comparison=now)
        if said == now and not wanted.is_sample
        else metrics.MetricTables(notes=(_OTHERS,))
    )


def _compared(
    chosen: Sequence[SelectedBatch], settings: Mapping[Metric, ComparisonSettings]
) -> dict[Metric, Comparison]:
    from terminalbench.analytics.compare import compare
    from terminalbench.analytics.rows import rows_of

    rows = rows_of([part.view for part in chosen])
    return {metric: compare(rows, asked) for metric, asked in settings.items()}


def _judged(
    chosen: Sequence[SelectedBatch], request: AnalysisRequest, output: Path
) -> tuple[JudgeResult | None, TbenchError | None]:
    """Return what the judge says; a model that cannot be asked leaves everything else as it is."""
    if request.judge is None:
        return None, None
    from terminalbench.analytics.judge.run import judge_batch

    try:
        return judge_batch(request_of(chosen, request.judge, output)), None
    except UserError:
        raise
    except TbenchError as error:
        return None, error


def analyse(
    chosen: Sequence[SelectedBatch], analyzers: Sequence[LoadedAnalyzer], progress: Progress | None = None
) -> int:
    """Bring the findings of the chosen trials up to date; how many trials had to be read."""
    total = sum(len(part.trials) for part in chosen)
    done = read = 0
    for part in chosen:
        # Names and most reasons are the same in every trial.
        hide = lru_cache(4096)(partial(without_secrets, secrets=part.secrets))
        with open_index(part.root) as connection:
            cache = FindingsCache(connection, part.key)
            for row in part.trials:
                read += _analyse_trial(cache, part.files(row), analyzers, hide)
                done += 1
                if progress is not None:
                    progress(done, total)
            cache.flush()
            cache.forget_gone()
    return read


def _analyse_trial(
    cache: FindingsCache, trial: TrialFiles, analyzers: Sequence[LoadedAnalyzer], hide: Callable[[str], str]
) -> bool:
    job, name = trial.key.split("/", 1)
    kept = cache.kept(job, name)
    stale = []
    stamps: dict[tuple[str, ...], str] = {}
    for loaded in analyzers:
        if loaded.targets not in stamps:
            stamps[loaded.targets] = f"{rules_digest()}|{stamp_of(trial, loaded.targets)}"
        stamp = stamps[loaded.targets]
        found = kept.get(loaded.name)
        if found is None or (found.version, found.stamp) != (loaded.version, stamp):
            stale.append((loaded, stamp))
    if stale and all(isinstance(loaded.analyzer, FailureAnalyzer) for loaded, _ in stale):
        trial = replace(trial, told=story_of_failure(trial))
    for loaded, stamp in stale:
        findings = run_analyzer(loaded, trial, trial.story.trajectory, hide)
        cache.put(job, name, loaded.name, loaded.version, stamp, findings)
    return bool(stale)
