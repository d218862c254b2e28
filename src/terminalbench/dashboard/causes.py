"""Why trials failed, from the findings the index keeps; what is not there yet is found in the background."""

import logging
import sqlite3
import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from terminalbench.dashboard.safe_files import Listed
from terminalbench.dashboard.site import Site
from terminalbench.errors import TbenchError
from terminalbench.harbor.read.results import ReadState
from terminalbench.index.pages import BatchSummary
from terminalbench.index.queries import BatchView, CellState, TrialRow
from terminalbench.records import Finding, Outcome

if TYPE_CHECKING:
    from terminalbench.analytics.findings.analyzers import Loaded
    from terminalbench.analytics.labels import People

_FAILURE = "failure"


@dataclass(frozen=True)
class FailureClass:
    """Trials that failed alike: how many of each profile; one of them with its reason and the steps that show it.

    The class of `labelled` ones is a person's word.
    """

    name: str
    profiles: Counter[str] = field(default_factory=Counter)
    example: TrialRow | None = None
    reason: str | None = None
    steps: tuple[int, ...] = ()
    labelled: int = 0

    @property
    def count(self) -> int:
        """All profiles together."""
        return self.profiles.total()


@dataclass(frozen=True)
class Causes:
    """The failure classes of a batch, the most frequent first; `classified` of `failed` trials have one."""

    classes: list[FailureClass]
    classified: int
    failed: int


def batch_causes(site: Site, summary: BatchSummary, view: BatchView) -> Causes:
    """What is known of the failures of a batch."""
    from terminalbench.analytics.labels import read_labels

    people = read_labels(site.batch(summary.batch).analytics).current()
    said = tuple((*key, label.time, label.value) for key, label in people.items())
    key = ("causes", summary.batch, summary.version, site.analyses.get(summary.batch, 0), said)
    return site.kept(key, lambda: _causes(site, summary.batch, view, people))


def _causes(site: Site, batch: str, view: BatchView, people: "People") -> Causes:
    from terminalbench.analytics.findings.cache import FindingsCache
    from terminalbench.analytics.labels import corrected, said_of

    cache = FindingsCache(site.index, batch)
    failed = [cell for cell in view.cells if _did_not_pass(cell)]
    found: dict[str, FailureClass] = {}
    spoken: Counter[str] = Counter()
    classified = 0
    for cell in failed:
        row = cell.row
        by_rule = _class_of(cache.read(row.job, row.name, [_FAILURE])) if row is not None else None
        if by_rule is None:
            continue
        classified += 1
        [finding] = corrected([by_rule], people)
        name = str(finding.value)
        spoken[name] += said_of(by_rule, people) is not None
        if name not in found:
            found[name] = FailureClass(name, Counter(), row, finding.reason, tuple(finding.steps[:6]))
        found[name].profiles[cell.profile] += 1
    classes = [replace(one, labelled=spoken[one.name]) for one in found.values()]
    return Causes(sorted(classes, key=lambda one: -one.count), classified, len(failed))


def _did_not_pass(cell: CellState) -> bool:
    return cell.row is not None and cell.row.state != ReadState.HELD and cell.outcome is not Outcome.PASSED


def _class_of(findings: list[Finding]) -> Finding | None:
    return next((f for f in findings if f.name == "failure_class" and f.value is not None), None)


def classify_missing(site: Site, summary: BatchSummary, causes: Causes, *, now: bool) -> bool:
    """Have failures classified that are not: in the background, or `now`. Whether something was found meanwhile.

    Once for each version of a batch, and never while it runs: looking on must cost a run nothing.
    """
    if causes.classified == causes.failed or summary.batch in site.live:
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


def _analyzers() -> "list[Loaded]":
    from terminalbench.analytics.findings.analyzers import load_analyzers

    return load_analyzers()


def trial_findings(site: Site, batch: str, row: TrialRow, files: list[Listed]) -> list[Finding]:
    """What analyzers said of a trial: kept in the index, written by an analysis, else found now.

    A folder with links in it is not analysed now: that could read elsewhere.
    """
    from terminalbench.analytics.findings.cache import FindingsCache

    names = [loaded.name for loaded in _analyzers()]
    kept = FindingsCache(site.index, batch).read(row.job, row.name, names)
    known = {finding.analyzer for finding in kept}
    written = [f for f in site.findings(batch).get(f"{row.job}/{row.name}", []) if f.analyzer not in known]
    known |= {finding.analyzer for finding in written}
    missing = [loaded for loaded in _analyzers() if loaded.name not in known]
    if not missing or row.trial is None or any(file.odd for file in files):
        return [*kept, *written]
    made = site.kept(
        ("found", batch, row.job, row.name, row.trial.finished_at), lambda: _find(site, batch, row, missing)
    )
    return [*kept, *written, *made]


def _find(site: Site, batch: str, row: TrialRow, missing: "list[Loaded]") -> list[Finding]:
    from terminalbench.analytics.findings.analyzers import run_analyzer
    from terminalbench.analytics.findings.trial_files import TrialFiles

    trial = TrialFiles(
        key=f"{row.job}/{row.name}",
        folder=site.trial_folder(batch, row),
        batch=site.batch(batch).folder,
        record=row.trial,
        usage=row.usage,
        reason=row.reason,
        agent=row.trial.agent if row.trial else None,
        secrets=site.secrets,
    )
    return [finding for loaded in missing for finding in run_analyzer(loaded, trial, trial.story.trajectory)]
