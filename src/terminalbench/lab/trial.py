"""The one trial that a command works on, and the labels of people: what a trial shows, how far the judge agrees."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from terminalbench.analytics.judge.output import findings_of, refresh_findings
from terminalbench.analytics.labels import (
    FAILURE_CLASS,
    FILE,
    Agreement,
    Label,
    add_label,
    agreements,
    make_label,
    parse_value,
    read_labels,
)
from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.index.places import BatchPlace, ForeignJobs, is_trial
from terminalbench.index.queries import BatchView, TrialRow, trial_rows, trials_named
from terminalbench.index.results import FINDINGS_FILE
from terminalbench.index.scan import scan_all, scan_batch
from terminalbench.lab.select import LIST_HINT, find_target, results_root
from terminalbench.live.status import running_now, view_now
from terminalbench.records.trial import Trial
from terminalbench.strict import is_file
from terminalbench.text.foreign import printable
from terminalbench.text.names import from_here, is_task, unknown
from terminalbench.text.numbers import plural


@dataclass(frozen=True)
class FoundTrial:
    """A trial, the batch it is in, and what the index calls that batch."""

    batch: Batch
    batch_key: str
    row: TrialRow

    @property
    def folder(self) -> Path:
        """The folder of the trial."""
        return self.batch.folder / self.row.folder

    @property
    def later(self) -> tuple[Trial, ...]:
        """The tries of its attempt that were run after its verdict, which counts."""
        row = self.row
        if row.trial is None or not row.trial.measured or row.run_again or row.attempt is None:
            return ()
        place = (row.profile, row.dataset, row.task, row.attempt)
        others = trial_rows(self.batch.results_root, self.batch_key)
        return tuple(
            other.trial
            for other in others
            if other.run_again and other.trial is not None and other.trial.measured
            if (other.profile, other.dataset, other.task, other.trial.attempt) == place
        )

    @property
    def running(self) -> bool:
        """True when it runs now."""
        return self.row.trial is None and self.row.key in (running_now(self.batch) or {})

    @property
    def key(self) -> str:
        """The key of the trial in findings and labels."""
        return f"{self.row.job}/{self.row.name}"


def find_trial(name: str, results: Path | None = None) -> FoundTrial:
    """The one trial called `name`, or whose name begins so, or in the folder `name`; a clear error otherwise."""
    if results is None and is_trial(name):
        return _trial_in(Path(name).resolve())
    if "/" in name:
        raise UserError("is not the folder of a trial", where=name, hint="name the trial, or its folder")
    root = results_root(results)
    scan_all(root)
    found = trials_named(root, name)
    exact = [entry for entry in found if entry[1].name == name] or found
    if not exact:
        raise UserError(f'no trial is called "{name}"', where=from_here(root), hint=LIST_HINT)
    if len(exact) > 1:
        names = "\n  ".join(printable(f"{batch}  {row.profile}  {row.name}") for batch, row in exact)
        hint = "\n  give the full name, or: tbench show BATCH PROFILE TASK#N"
        raise UserError(f'several trials start with "{name}":\n  {names}{hint}', where=from_here(root))
    key, row = exact[0]
    return FoundTrial(BatchPlace(key, str(root / key)).batch, key, row)


def trials_now(name: Path, results: Path | None = None) -> BatchView:
    """The trials of a batch, with what runs now."""
    return view_now(find_target(name, results=results, foreign=True).batch)


def find_attempt(batch: str, profile: str, task: str, results: Path | None = None) -> FoundTrial:
    """The trial of a batch that counts for an attempt: `task` is as in `fix-git`, `starter/fix-git` or `fix-git#2`."""
    target = find_target(batch, results=results, foreign=True)
    view = view_now(target.batch)
    name, sign, number = task.rpartition("#")
    name, number = (name, number) if sign and number.isdecimal() else (task, "1")
    where = from_here(target.batch.folder)
    cells = [cell for cell in view.cells if cell.profile == profile]
    if not cells:
        raise unknown("profile", profile, (cell.profile for cell in view.cells), where)
    cells = [cell for cell in cells if is_task(cell.task.dataset, cell.task.id, name)]
    if not cells:
        raise unknown("task", name, (cell.task.id for cell in view.cells if cell.profile == profile), where)
    if len({cell.task for cell in cells}) > 1:
        names = ", ".join(dict.fromkeys(cell.task.name for cell in cells))
        raise UserError(f'"{name}" matches several tasks: {names}', where=where)
    found = next((cell for cell in cells if cell.attempt == int(number)), None)
    if found is None:
        raise UserError(f"{name} has {plural(len(cells), 'attempt')} by {profile}, but no #{number}", where=where)
    if found.row is None and found.running:
        raise UserError(f"{name}#{number} by {profile} has just started", where=where)
    if found.row is None:
        why = f": {found.reason}" if found.reason else ""
        raise UserError(f"{name}#{number} by {profile} has not run{why}", where=where)
    return FoundTrial(target.batch, view.batch, found.row)


def _trial_in(folder: Path) -> FoundTrial:
    """The trial in a folder: of a batch of ours, or of a Harbor job."""
    runs = folder.parent.parent
    batch: Batch = ForeignJobs(runs, (folder.parent.name,))
    if runs.name in ("runs", "superseded") and is_file(runs.parent / "plan.json"):
        batch = Batch(runs.parent)
    scan_batch(batch)
    key = batch.folder.relative_to(batch.results_root).as_posix()
    for row in trial_rows(batch.results_root, key):
        if batch.folder / row.folder == folder:
            return FoundTrial(batch, key, row)
    raise UserError("is not a readable trial", where=str(folder))


@dataclass(frozen=True)
class BatchLabels:
    """The labels of a batch that hold, how many lines of its file do not count, and the judge's agreement with them."""

    batch: str
    labels: tuple[Label, ...]
    unreadable: int
    agreement: tuple[Agreement, ...]


def label_trial(root: Path, trial: str, name: str, value: str | None, *, author: str, reason: str) -> Label:
    """Label a trial, or with None take its label back; the findings of its batch then know it."""
    found = find_trial(trial, root)
    row, analytics = found.row, found.batch.analytics
    if value is None and (found.key, name) not in read_labels(analytics).current():
        raise UserError(f'{row.name} has no label "{name}"', hint="tbench label --list shows all labels")
    if name == FAILURE_CLASS and value is not None and row.trial is not None and row.trial.outcome == "passed":
        raise UserError(f"{row.name} passed, so it has no {FAILURE_CLASS}")
    if name == FAILURE_CLASS and value is not None and row.trial is None:
        raise UserError(f"{row.name} has no result, so a failure cannot be labelled")
    parsed = None if value is None else parse_value(name, value, findings_of(analytics))
    label = make_label(found.key, name, parsed, author, reason, datetime.now(UTC))
    add_label(analytics, label)
    if (analytics / FINDINGS_FILE).exists():
        refresh_findings(analytics, [found.batch])
    return label


def batch_labels(root: Path, trial: str | None = None) -> list[BatchLabels]:
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
