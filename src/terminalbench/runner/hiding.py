"""Taking secrets out of what Harbor processes leave: their own logs, and the trials of one that was killed."""

import contextlib

from terminalbench.experiments.batch import Batch
from terminalbench.files import read_jsonl
from terminalbench.harbor.scrub_files import scrub_beside, scrub_folder
from terminalbench.records import Event


def scrub_logs(batch: Batch) -> None:
    """Hide what Harbor processes that have ended printed and recorded of their jobs as a whole."""
    with contextlib.suppress(OSError):
        jobs = [job for job in batch.runs.iterdir() if job.is_dir() and not job.is_symlink()]
        for folder in (batch.runs, *jobs):
            with contextlib.suppress(OSError):  # a full disk, a file of another user; whoever shows it hides it too
                scrub_beside(folder)


def scrub_leftovers(batch: Batch) -> None:
    """Hide what trials left whose Harbor was killed before it came to that; nothing of them runs any more."""
    scrub_logs(batch)
    with contextlib.suppress(OSError):
        events = read_jsonl(batch.events_jsonl, Event).records
        done = {(event.job, event.trial) for event in events if event.kind == "trial_ended"}
        trials = [folder for folder in batch.runs.glob("*/*/") if (folder.parent.name, folder.name) not in done]
        for folder in (*trials, batch.superseded):
            with contextlib.suppress(OSError):
                scrub_folder(folder)
