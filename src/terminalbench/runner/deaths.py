"""What becomes of a trial that killed its Harbor process twice, the second time when nothing else ran.

The word is left in the trial's folder, where no agent in a sandbox reaches it, and told as an event: `harbor/read`
judges by it for every reader.
"""

import os
from pathlib import Path

from terminalbench.harbor.limits.hangs import HUNG, Hang
from terminalbench.harbor.read import RESULT
from terminalbench.harbor.read.results import read_trial
from terminalbench.json_files import write_json
from terminalbench.records.event import Event, EventKind
from terminalbench.secrets.values import Secrets


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
