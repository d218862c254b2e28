"""Harbor processes that ended before their jobs: how that is said, and what becomes of a trial that did it twice.

The word about such a trial is left in its folder, where no agent in a sandbox reaches it, and told as an event:
`harbor/read` judges by it for every reader.
"""

import os
import re
from pathlib import Path

from terminalbench.files import tail_plain
from terminalbench.harbor.limits.hangs import HUNG, Hang
from terminalbench.harbor.read import RESULT
from terminalbench.harbor.read.results import read_trial
from terminalbench.json_files import write_json
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
