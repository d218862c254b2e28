"""Taking secrets out of what Harbor processes leave: their own logs, and the trials of one that was killed."""

import contextlib

from terminalbench.experiments.batch import Batch
from terminalbench.files import read_jsonl
from terminalbench.harbor.scrub_files import scrub_beside, scrub_folder
from terminalbench.records import Event


def scrub_logs(batch: Batch) -> None:
    """Hide what Harbor processes that have ended printed and recorded of their jobs as a whole."""
    with contextlib.suppress(OSError):  # a full disk; whoever shows it hides it too
        scrub_beside(batch.runs)
        for job in batch.runs.iterdir():
            if job.is_dir() and not job.is_symlink():
                scrub_beside(job)


def scrub_leftovers(batch: Batch) -> None:
    """Hide what trials left whose Harbor was killed before it came to that; nothing of them runs any more."""
    with contextlib.suppress(OSError):
        scrub_logs(batch)
        events = read_jsonl(batch.events_jsonl, Event).records
        done = {(event.job, event.trial) for event in events if event.kind == "trial_ended"}
        for folder in batch.runs.glob("*/*/"):
            if (folder.parent.name, folder.name) not in done:
                scrub_folder(folder)
        scrub_folder(batch.superseded)
