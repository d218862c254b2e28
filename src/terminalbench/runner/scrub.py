"""Taking secrets out of what Harbor processes leave: their own logs, and the trials of one that was killed."""

import contextlib
import os

from terminalbench.experiments.batch import Batch
from terminalbench.json_files import read_jsonl
from terminalbench.records.event import Event
from terminalbench.secrets.values import Secrets


def scrub_leftovers(batch: Batch, secrets: Secrets) -> None:
    """Hide what ended Harbor processes printed, and what killed ones left of their trials. None of them may still run.

    The JobConfigs beside the job folders are left alone: there are no values of variables in them, and a key that is a
    common word ("local-model") would change what a resume reads.
    """
    if not secrets.spelled:
        return
    with _as_far_as_possible():
        secrets.scrub_beside(batch.runs, set(batch.runs.glob("*.job.json")))
    ends = [event for event in read_jsonl(batch.events_jsonl, Event).records if event.kind == "trial_ended"]
    done = {(event.job, event.trial) for event in ends if not event.detail.get("retried")}
    # A folder of a failed try is set aside after it was scrubbed, and then its end is told.
    tried = {(event.job, f"{event.trial}-try{event.detail.get('try', 1)}") for event in ends}
    for root, known in ((batch.runs, done), (batch.superseded, tried)):
        for job in (folder for folder in root.glob("*/") if not folder.is_symlink()):
            with _as_far_as_possible():
                secrets.scrub_beside(job)
            for name in os.listdir(job):  # noqa: PTH208  there may be thousands
                if (job.name, name) not in known and (job / name).is_dir():
                    with _as_far_as_possible():
                        secrets.scrub_folder(job / name)


def _as_far_as_possible() -> contextlib.suppress:
    """A full disk, a file of another user: what shows it hides it too."""
    return contextlib.suppress(OSError)
