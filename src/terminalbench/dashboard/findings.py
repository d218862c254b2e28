"""What analyzers say of the trials, from the findings the index keeps; missing ones are made in the background."""

import logging
import sqlite3
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from terminalbench.dashboard.frame import PageRequest
from terminalbench.dashboard.safe_files import TrialFile
from terminalbench.dashboard.site import Site
from terminalbench.errors import TbenchError
from terminalbench.index.pages import BatchSummary
from terminalbench.index.queries import BatchView, TrialRow
from terminalbench.records.trial import Finding, Outcome

if TYPE_CHECKING:
    from terminalbench.analytics.error_groups import FailureGroup
    from terminalbench.analytics.findings.analyzers import LoadedAnalyzer
    from terminalbench.analytics.findings.trial_files import TrialFiles
    from terminalbench.analytics.labels import People

_FAILURE = "failure"
_APART_SEC = 600.0


@dataclass(frozen=True)
class Failures:
    """The failure classes of a batch, the most frequent first; `classified` of `failed` trials have one."""

    classes: "list[FailureGroup]"
    classified: int
    failed: int


def batch_failures(site: Site, summary: BatchSummary, view: BatchView) -> Failures:
    """Return what is known of the failures of a batch."""
    from terminalbench.analytics.labels import read_labels

    people = read_labels(site.batch(summary.batch).analytics).current()
    said = tuple((*key, label.time, label.value) for key, label in people.items())
    key = ("failures", summary.batch, summary.version, site.analyses.get(summary.batch, 0), said)
    return site.kept(key, lambda: _failures(site, summary.batch, view, people))


def _failures(site: Site, batch: str, view: BatchView, people: "People") -> Failures:
    from terminalbench.analytics.error_groups import failed_trial, failure_classes
    from terminalbench.analytics.findings.analyzers import FindingsCache
    from terminalbench.analytics.selection import ran

    cache = FindingsCache(site.index, batch)
    failed = [(cell, cell.row) for cell in view.cells if cell.row and ran(cell) and cell.outcome is not Outcome.PASSED]
    found = [failed_trial(batch, cell, cache.read(row.job, row.name, [_FAILURE]), people) for cell, row in failed]
    known = [one for one in found if one is not None]
    return Failures(failure_classes(known), len(known), len(failed))


def classify_missing(site: Site, summary: BatchSummary, failures: Failures, *, now: bool) -> bool:
    """Have failures classified that are not: in the background, or `now`. Whether something was found meanwhile.

    Once for each version of a batch, and never while it runs: looking on must cost a run nothing.
    """
    if failures.classified == failures.failed or summary.batch in site.live:
        return False
    if not site.first_time(("classify", summary.batch, summary.version)):
        return False
    if now:
        classify(site, summary.batch)
    else:
        threading.Thread(target=classify, args=(site, summary.batch), name="classify", daemon=True).start()
    return now


def classify(site: Site, batch: str) -> None:
    """Find the failure classes of a batch now."""
    from terminalbench.analytics.run import analyse, pick
    from terminalbench.analytics.selection import Filter

    try:
        analyse(pick([site.batch(batch)], Filter()), [one for one in _analyzers() if one.name == _FAILURE])
    except (TbenchError, OSError, sqlite3.Error) as error:  # the page says what is not classified
        logging.getLogger(__name__).warning("%s could not be analysed: %s", batch, error)
    site.analyses[batch] = site.analyses.get(batch, 0) + 1


def _analyzers() -> "list[LoadedAnalyzer]":
    from terminalbench.analytics.findings.analyzers import load_analyzers

    return load_analyzers()


@dataclass(frozen=True)
class TrialFindings:
    """What analyzers said of a trial. `missing`: some have not looked at it; `waiting`: they do so now."""

    found: list[Finding]
    missing: bool = False
    waiting: bool = False


def trial_findings(site: Site, ask: PageRequest, row: TrialRow, files: list[TrialFile], *, many: bool) -> TrialFindings:
    """Return what analyzers said of a trial: kept in the index, written by an analysis, else found now.

    Of `many` steps that takes a minute and much memory: a process of its own does it when a reader asks for it. A
    folder with links in it is not analysed: that could read elsewhere.
    """
    from terminalbench.analytics.findings.analyzers import FindingsCache
    from terminalbench.analytics.findings.trial_files import TrialFiles

    batch, names = ask.batch, [loaded.name for loaded in _analyzers()]
    cache = FindingsCache(site.index, batch)
    found = cache.read(row.job, row.name, names)
    known = {finding.analyzer for finding in found}
    found += [f for f in site.findings(batch).get(row.key, []) if f.analyzer not in known]
    known |= {*(finding.analyzer for finding in found), *cache.kept(row.job, row.name)}  # some have nothing to say
    missing = [name for name in names if name not in known]
    if not missing or row.trial is None or any(file.odd for file in files):
        return TrialFindings(found)
    key = ("found", batch, row.job, row.name, row.trial.finished_at)
    trial = TrialFiles.of(row, site.trial_folder(batch, row), site.batch(batch).folder, site.secrets)
    if not many:
        return TrialFindings([*found, *site.kept(key, lambda: _find(trial, missing))])
    if ask.static or ask.data:
        return TrialFindings([*found, *site.kept(key, lambda: _find_apart(trial, missing))])
    if not ask.text("analyse") and not site.holds(key):
        return TrialFindings(found, missing=True)
    made = site.made(batch, key, lambda: _find_apart(trial, missing), wait=False)
    return TrialFindings([*found, *(made or ())], waiting=made is None)


def _find(trial: "TrialFiles", names: list[str]) -> list[Finding]:
    from terminalbench.analytics.findings.analyzers import run_analyzer

    chosen = [loaded for loaded in _analyzers() if loaded.name in names]
    return [finding for loaded in chosen for finding in run_analyzer(loaded, trial, trial.story.trajectory)]


def _find_apart(trial: "TrialFiles", names: list[str]) -> list[Finding]:
    """The same in a process of its own, which takes its memory with it."""
    from multiprocessing import get_context
    from multiprocessing.context import TimeoutError as TookTooLong

    with get_context("spawn").Pool(1) as pool:
        try:
            return pool.apply_async(_find, (trial, names)).get(_APART_SEC)
        except (OSError, TookTooLong, MemoryError) as error:
            reason = f"it could not be analysed: {type(error).__name__}"
            return [Finding(trial.key, name, "", name, None, reason) for name in names]
