"""Labels of people: what they say a trial shows, and how far the judge agrees."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from terminalbench.analytics.judge.agreement import Agreement, agreements
from terminalbench.analytics.judge.output import findings_of, refresh_findings
from terminalbench.analytics.labels import (
    FAILURE_CLASS,
    FILE,
    Label,
    add_label,
    make_label,
    parse_value,
    read_labels,
)
from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.index.places import ForeignJobs
from terminalbench.index.results import FINDINGS_FILE
from terminalbench.lab.trial import find_trial


@dataclass(frozen=True)
class BatchLabels:
    """The labels of a batch that hold, how many lines of its file do not count, and the judge's agreement with them."""

    batch: str
    labels: tuple[Label, ...]
    unreadable: int
    agreement: tuple[Agreement, ...]


def add(root: Path, trial: str, name: str, value: str | None, *, author: str, reason: str) -> Label:
    """Label a trial, or with None take its label back; the findings of its batch then know it."""
    found = find_trial(trial, root)
    row, analytics = found.row, found.batch.analytics
    if value is None and (found.key, name) not in read_labels(analytics).current():
        raise UserError(f'{row.name} has no label "{name}"', hint="tbench label --list shows what there is")
    if name == FAILURE_CLASS and value is not None and row.trial is not None and row.trial.outcome == "passed":
        raise UserError(f"{row.name} passed: it has no {FAILURE_CLASS}")
    if name == FAILURE_CLASS and value is not None and row.trial is None:
        raise UserError(f"{row.name} has no result: nobody can say why it failed")
    parsed = None if value is None else parse_value(name, value, findings_of(analytics))
    label = make_label(found.key, name, parsed, author, reason, datetime.now(UTC))
    add_label(analytics, label)
    if (analytics / FINDINGS_FILE).exists():
        refresh_findings(analytics, [found.batch])
    return label


def listed(root: Path, trial: str | None = None) -> list[BatchLabels]:
    """The labels of every batch that has some, or of one trial."""
    if trial is not None:
        found = find_trial(trial, root)
        return [_of_batch(root, found.batch, found.key)]
    batches = [ForeignJobs(root), *map(Batch, sorted(root.glob("*/*")))]
    return [_of_batch(root, batch, None) for batch in batches if (batch.analytics / FILE).is_file()]


def _of_batch(root: Path, batch: Batch, key: str | None) -> BatchLabels:
    found = read_labels(batch.analytics)
    held = tuple(label for label in found.current().values() if key in (None, label.trial))
    agreed = agreements(findings_of(batch.analytics), found) if key is None else []
    return BatchLabels(batch.folder.relative_to(root).as_posix(), held, found.unreadable, tuple(agreed))
