"""Harbor processes that ended: how that is said, a trial that ended one twice, and the secrets in what they left.

The word about such a trial is left in its folder, where no agent in a sandbox reaches it, and told as an event:
`harbor/read` judges by it for every reader.
"""

import contextlib
import os
import re
from pathlib import Path

from terminalbench.experiments.batch import Batch
from terminalbench.files import tail_plain
from terminalbench.harbor.limits.hangs import HUNG, Hang
from terminalbench.harbor.read import RESULT
from terminalbench.harbor.read.results import read_trial
from terminalbench.json_files import read_jsonl, write_json
from terminalbench.records.event import Event, EventKind
from terminalbench.secrets.values import Secrets

_LAST_LINES = 3
_FRAME = " │╭╮╰╯─\t"
_RAISED = re.compile(r"[\w.]*(?:Error|Exception|Exit|Interrupt): .+")


def how_it_ended(code: int, last_words: str) -> str:
    """Return how a Harbor process ended before its job was done, by exit code (negative: a signal) and last words."""
    how = f"was killed by signal {-code}" if code < 0 else f"ended its job (code {code})"
    return f"Harbor {how}" + (f": {last_words}" if last_words else "")


def log_tail(log: Path, secrets: Secrets) -> str:
    """The last words of a job, for a message: what it raised, else its last lines."""
    text = tail_plain(log, 64 * 1024) or ""
    kept = [line.strip(_FRAME) for line in text.splitlines() if line.strip(_FRAME)]
    raised = [line for line in kept if _RAISED.fullmatch(line)]
    return secrets.one_line(raised[-1] if raised else " ".join(kept[-_LAST_LINES:]))


def blame(folder: Path, last: Event, why: str, secrets: Secrets) -> Event | None:
    """Leave the word in the folder of a trial, of which `last` was heard; returns the event of its end.

    None when its folder does not tell which trial it was.
    """
    reason = f"Harbor's process died twice while the trial ran, the second time alone: {why}"
    write_json(folder / HUNG, Hang(last.phase or "environment", reason, died=True))
    if (folder / RESULT).exists():
        os.utime(folder / RESULT)  # Harbor's word is older: whoever has read it reads it anew
    trial = read_trial(folder, profile=last.profile, secrets=secrets).trial
    if trial is None:
        return None
    told = {"agent_status": trial.agent_status.value, "error_class": trial.error_class}
    said = ": ".join(part for part in (trial.error_type, trial.error_message) if part)
    return Event.now(
        EventKind.TRIAL_ENDED,
        last.job,
        profile=last.profile,
        trial=last.trial,
        task=last.task,
        dataset=last.dataset,
        attempt=last.attempt,
        outcome=trial.outcome.value,
        reward=trial.reward,
        error=said or None,
        usage=trial.usage if trial.usage.known else None,
        detail={name: value for name, value in told.items() if value is not None},
    )


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
