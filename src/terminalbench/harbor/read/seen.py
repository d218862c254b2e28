"""`seen.json` in a trial folder: what the Harbor process saw of the agent, where no agent in a sandbox reaches it."""

from pathlib import Path

import msgspec

from terminalbench.json_files import decode_plain
from terminalbench.records.trial import ProviderWait

SEEN = "seen.json"
_SIZE_LIMIT = 1 << 20


class HostActivity(msgspec.Struct, frozen=True, omit_defaults=True):
    """The activity of an agent on the host; None: it does not work from the host, so nothing could be seen.

    `commands` are those it ran in its environment; `asked`, `answers` and `wait` are of the models that it calls by
    Harbor's own client. `uploads` are digests of the files and folders that it brought into its environment, by their
    path from the project on.
    """

    commands: int | None = None
    asked: int | None = None
    answers: int | None = None
    wait: ProviderWait | None = None
    uploads: dict[str, str] = {}

    @property
    def unanswered(self) -> bool:
        """True when it asked its model, and never had an answer nor a refusal."""
        return bool(self.asked) and not self.answers and not (self.wait and self.wait.refused)


def read_seen(trial_dir: Path) -> HostActivity:
    """The note in a trial folder; empty where there is none."""
    return decode_plain(f"{trial_dir}/{SEEN}", HostActivity, _SIZE_LIMIT) or HostActivity()
