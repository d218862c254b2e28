"""The notes that the plugin leaves in a trial folder, where no agent in a sandbox reaches them.

planned.json   what it knows of the trial before it starts: the price of its tokens, its attempt, its client
seen.json      what the Harbor process saw of the agent: commands, answers, refusals
times.json     the moments between its phases by two clocks

Harbor's result has times of day. Where in a phase the time of day was set, or Harbor's process was stopped, or its
machine slept, the clock that only goes forward disagrees with it: then nobody knows how long that phase took.
"""

import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import msgspec

from terminalbench.experiments.agents import recorded
from terminalbench.experiments.tables import ProfilePrice
from terminalbench.json_files import decode_plain
from terminalbench.records.trial import ProviderWait

PLANNED, SEEN, TIMES = "planned.json", "seen.json", "times.json"
_SIZE_LIMIT = 1 << 20
_TOLERANCE_SEC = 1.0
_TOLERANCE_SHARE = 0.001  # twice what a clock that is being corrected gains or loses
_PHASES = {
    "start": ("environment_sec", "agent_setup_sec"),
    "environment-start": ("environment_sec", "agent_setup_sec"),
    "agent-start": ("agent_sec",),
    "verification-start": ("verifier_sec",),
}
"""The fields of `Phases` that lie between a moment and the next."""


class PlannedTrial(msgspec.Struct, frozen=True, omit_defaults=True):
    """The price that the profile of the trial declares, which attempt at its task the trial is, and its `client_of`.

    Without a price the recorded price table holds.
    """

    price: ProfilePrice | None = None
    attempt: int | None = None
    client: str | None = None
    started_at: datetime | None = None


def read_planned(trial_dir: Path) -> PlannedTrial:
    """The note in a trial folder; empty where there is none."""
    return decode_plain(f"{trial_dir}/{PLANNED}", PlannedTrial, _SIZE_LIMIT) or PlannedTrial()


def client_of(name: str | None, import_path: str | None, planned: PlannedTrial | None = None) -> str | None:
    """Whose logs tell what an agent did and used; None: of no client, so only what reached Harbor is believed.

    As the record of its class says (`usage`), which is kept beside the trial because only the run surely finds the
    class; else as that of the agent with Harbor's name for it, which a subclass has too. No file in its logs says it.
    """
    records = (recorded(import_path), recorded(name))
    kept = planned.client if planned is not None else None
    return kept or next((record.usage for record in records if record and record.usage), None)


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


class Moment(msgspec.Struct, frozen=True):
    """An event, its time of day (seconds since 1970), and the seconds in which Harbor's process ran."""

    what: str
    wall: float
    forward: float

    @classmethod
    def now(cls, what: str, forward: float) -> "Moment":
        """This moment."""
        return cls(what, time.time(), forward)


class Times(msgspec.Struct, frozen=True):
    """The moments of a trial, from its start to its end."""

    moments: list[Moment] = []

    @property
    def jumped(self) -> bool:
        """True when the time of day was set, or Harbor did not run, while the trial did."""
        return any(_jumped(*pair) for pair in pairwise(self.moments))

    @property
    def cancelled(self) -> bool:
        """True when the trial was interrupted."""
        return any(moment.what == "cancel" for moment in self.moments)

    @property
    def unknown(self) -> set[str]:
        """The fields of `Phases` that times of day do not tell."""
        return {name for pair in pairwise(self.moments) if _jumped(*pair) for name in _PHASES.get(pair[0].what, ())}


def _jumped(first: Moment, second: Moment) -> bool:
    forward = second.forward - first.forward
    return abs(second.wall - first.wall - forward) > _TOLERANCE_SEC + _TOLERANCE_SHARE * forward


def read_times(trial_dir: Path) -> Times:
    """The note in a trial folder; empty where there is none: older trials have their times of day."""
    return decode_plain(f"{trial_dir}/{TIMES}", Times, _SIZE_LIMIT) or Times()
