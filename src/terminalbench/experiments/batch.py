"""All paths of a batch, and the numbers of batches."""

from dataclasses import dataclass
from pathlib import Path

from terminalbench.files import FolderPath
from terminalbench.locks import living_owner
from terminalbench.modes import make_folder


@dataclass(frozen=True)
class Batch:
    """One execution on disk. No other module joins these paths.

    <results_root>/<slug>/<n>/
      experiment.toml                       byte copy of the input
      plan.json                             the resolved plan; resume reads this, never the TOML
      events.jsonl                          append-only lifecycle of jobs and trials
      lessons/<profile>.json                what the memory held for its tasks when it was planned
      gate.json                             budget, deadline and what has been spent; models that are rate limited
      control.json                          what was told to the live run (`tbench ctl`, the watchdog)
      runs/<timestamp>__<profile>.job.json  the exact JobConfig handed to `harbor run -c`
      runs/<timestamp>__<profile>/          Harbor's job folder, untouched
      runs/index.json                       export of the index
      superseded/                           trial folders set aside before a retry or resume would delete them
      workers/<job>.json                    pid, process group, start time, host, heartbeat
      analytics/                            findings, comparison, report
      imported/<digest>.jsonl               trials that another tool recorded, of a batch that was imported
      imported/source/                      what they were read from, where it was asked to be copied
      artifacts/<target>/<trial>/           session folders copied out of every trial
      arriving/<job>/                       trials on their way from a machine that does not see this folder
      earlier.json                          on such a machine: what earlier jobs of a profile have finished
      .place                                a random text: a machine that reads it there sees this folder
      .lock                                 held by the process that runs the batch
    """

    folder: Path

    experiment_toml = FolderPath("experiment.toml")
    plan_json = FolderPath("plan.json")
    events_jsonl = FolderPath("events.jsonl")
    gate_json = FolderPath("gate.json")
    control_json = FolderPath("control.json")
    superseded = FolderPath("superseded")
    runs = FolderPath("runs")
    """Harbor's `jobs_dir`."""
    index_json = FolderPath("runs/index.json")
    analytics = FolderPath("analytics")
    tables = FolderPath("analytics")
    """Its tables and its report, as any folder of results has them."""
    artifacts = FolderPath("artifacts")
    arriving = FolderPath("arriving")
    place = FolderPath(".place")
    earlier_json = FolderPath("earlier.json")
    lock = FolderPath(".lock")
    imported = FolderPath("imported")

    @property
    def number(self) -> int:
        """The batch's number."""
        return int(self.folder.name)

    @property
    def results_root(self) -> Path:
        """The results folder it lies in, where its index is."""
        return self.folder.parent.parent

    def lessons(self, profile: str) -> Path:
        """Return what the memory held for a profile with lessons."""
        return self.folder / "lessons" / f"{profile}.json"

    def worker(self, job_name: str) -> Path:
        """Return who runs a job."""
        return self.folder / "workers" / f"{job_name}.json"

    def job_log(self, job_name: str) -> Path:
        """Return what a job's Harbor process printed."""
        return self.runs / f"{job_name}.log"

    def job_config(self, job_name: str) -> Path:
        """The JobConfig of a job, beside its folder."""
        return self.runs / f"{job_name}.job.json"

    def job_folder(self, job_name: str) -> Path:
        """Harbor's folder of a job."""
        return self.runs / job_name


def batch_numbers(results_root: Path, slug: str) -> list[int]:
    """The numbers of the batches on disk, ascending."""
    folder = results_root / slug
    if not folder.is_dir():
        return []
    return sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isdecimal() and entry.is_dir())


def next_number(results_root: Path, slug: str) -> int:
    """The number the next batch would get. Takes nothing: two runs may see the same one."""
    numbers = batch_numbers(results_root, slug)
    return numbers[-1] + 1 if numbers else 0


def allocate(results_root: Path, slug: str, wanted: int | None = None) -> Batch:
    """Take the next free number by making its folder; two runs at once get two batches.

    A number that is `wanted` is taken if no batch has it: a folder without a plan was left by a run that was killed.
    """
    folder = results_root / slug
    make_folder(folder)
    if wanted is not None:
        batch = Batch(folder / str(wanted))
        if not batch.plan_json.exists() and living_owner(batch.lock) is None:
            make_folder(batch.folder)
            return batch
    while True:
        batch = Batch(folder / str(next_number(results_root, slug)))
        try:
            make_folder(batch.folder, exist_ok=False)
        except FileExistsError:
            continue
        return batch


def latest(results_root: Path, slug: str, *, with_data: bool = True) -> Batch | None:
    """The highest-numbered batch that has a plan; `with_data`: and at least one job folder."""
    batches = (Batch(results_root / slug / str(n)) for n in reversed(batch_numbers(results_root, slug)))
    return next((b for b in batches if b.plan_json.is_file() and (not with_data or _has_jobs(b))), None)


def _has_jobs(batch: Batch) -> bool:
    return batch.runs.is_dir() and any(path.is_dir() for path in batch.runs.iterdir())
