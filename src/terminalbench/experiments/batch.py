"""All paths of a batch, and the numbers of batches."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Batch:
    """One execution on disk. Nobody else joins these paths.

    <results_root>/<slug>/<n>/
      experiment.toml                       byte copy of the input
      plan.json                             the resolved plan; resume reads this, never the TOML
      events.jsonl                          append-only lifecycle of jobs and trials
      gate.json                             budget, deadline and what has been spent; models that are rate limited
      control.json                          what was told to the live run (`tbench ctl`, the watchdog)
      runs/<timestamp>__<profile>.job.json  the exact JobConfig handed to `harbor run -c`
      runs/<timestamp>__<profile>/          Harbor's job folder, untouched
      runs/index.json                       export of the index
      superseded/                           trial folders set aside before a retry or resume would delete them
      workers/<job>.json                    pid, process group, start time, host, heartbeat
      analytics/                            findings, comparison, report
      artifacts/<target>/<trial>/           session folders copied out of every trial
    """

    folder: Path

    @property
    def number(self) -> int:
        """The batch's number."""
        return int(self.folder.name)

    @property
    def experiment_toml(self) -> Path:
        """Byte copy of the experiment file."""
        return self.folder / "experiment.toml"

    @property
    def plan_json(self) -> Path:
        """The resolved plan."""
        return self.folder / "plan.json"

    @property
    def events_jsonl(self) -> Path:
        """The append-only lifecycle."""
        return self.folder / "events.jsonl"

    @property
    def gate_json(self) -> Path:
        """Budget, deadline, spend and rate limits: see `terminalbench.harbor.limits.gate`."""
        return self.folder / "gate.json"

    @property
    def control_json(self) -> Path:
        """What was told to the live run: see `terminalbench.harbor.limits.control`."""
        return self.folder / "control.json"

    @property
    def runs(self) -> Path:
        """Harbor's `jobs_dir`."""
        return self.folder / "runs"

    @property
    def index_json(self) -> Path:
        """Export of the index."""
        return self.runs / "index.json"

    @property
    def artifacts(self) -> Path:
        """Session folders copied out of every trial."""
        return self.folder / "artifacts"

    @property
    def superseded(self) -> Path:
        """Trial folders set aside."""
        return self.folder / "superseded"

    @property
    def analytics(self) -> Path:
        """What was found."""
        return self.folder / "analytics"

    @property
    def lock(self) -> Path:
        """Held by the process that runs the batch."""
        return self.folder / ".lock"

    def worker(self, job_name: str) -> Path:
        """Who runs a job."""
        return self.folder / "workers" / f"{job_name}.json"

    def job_log(self, job_name: str) -> Path:
        """What a job's Harbor process printed."""
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


def allocate(results_root: Path, slug: str) -> Batch:
    """Take the next free number by making its folder; two runs at once get two batches."""
    folder = results_root / slug
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        batch = Batch(folder / str(next_number(results_root, slug)))
        try:
            batch.folder.mkdir()
        except FileExistsError:
            continue
        return batch


def latest_started(results_root: Path, slug: str) -> Batch | None:
    """The highest-numbered batch that has a plan, whether or not anything of it has run yet."""
    batches = (Batch(results_root / slug / str(n)) for n in reversed(batch_numbers(results_root, slug)))
    return next((batch for batch in batches if batch.plan_json.is_file()), None)


def latest(results_root: Path, slug: str) -> Batch | None:
    """The highest-numbered batch that holds data: a plan and at least one job folder."""
    for number in reversed(batch_numbers(results_root, slug)):
        batch = Batch(results_root / slug / str(number))
        if batch.plan_json.is_file() and batch.runs.is_dir() and any(p.is_dir() for p in batch.runs.iterdir()):
            return batch
    return None
