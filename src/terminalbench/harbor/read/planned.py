"""`planned.json` in a trial folder: what the plugin knows of the trial before it starts, for every later reader."""

from datetime import datetime
from pathlib import Path

import msgspec

from terminalbench.experiments.agents import recorded
from terminalbench.experiments.tables import ProfilePrice
from terminalbench.harbor.read.usage import Declared
from terminalbench.json_files import decode_plain

PLANNED = "planned.json"
_SIZE_LIMIT = 1 << 20


class Planned(msgspec.Struct, frozen=True, omit_defaults=True):
    """The price that the profile of the trial declares, which attempt at its task the trial is, and its `client_of`."""

    price: ProfilePrice | None = None
    attempt: int | None = None
    client: str | None = None
    started_at: datetime | None = None

    @property
    def prices(self) -> Declared | None:
        """What prices the tokens of the trial; None: the recorded price table."""
        return None if self.price is None else Declared(self.price)


def read_planned(trial_dir: Path) -> Planned:
    """The note in a trial folder; empty where there is none."""
    return decode_plain(f"{trial_dir}/{PLANNED}", Planned, _SIZE_LIMIT) or Planned()


def client_of(name: str | None, import_path: str | None, planned: Planned | None = None) -> str | None:
    """Whose logs tell what an agent did and used; None: of no client, so only what reached Harbor is believed.

    As the record of its class says (`usage`), which is kept beside the trial because only the run surely finds the
    class; else as that of the agent with Harbor's name for it, which a subclass has too. No file in its logs says it.
    """
    records = (recorded(import_path), recorded(name))
    kept = planned.client if planned is not None else None
    return kept or next((record.usage for record in records if record and record.usage), None)
