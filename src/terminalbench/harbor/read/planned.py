"""`planned.json` in a trial folder: what the plugin knows of the trial before it starts, for every later reader."""

from datetime import datetime
from pathlib import Path

import msgspec

from terminalbench.experiments.agents import recorded
from terminalbench.experiments.tables import ProfilePrice
from terminalbench.harbor.read.usage import DeclaredPrice
from terminalbench.json_files import decode_plain

PLANNED = "planned.json"
_SIZE_LIMIT = 1 << 20


class PlannedTrial(msgspec.Struct, frozen=True, omit_defaults=True):
    """The price that the profile of the trial declares, which attempt at its task the trial is, and its `client_of`."""

    price: ProfilePrice | None = None
    attempt: int | None = None
    client: str | None = None
    started_at: datetime | None = None

    @property
    def prices(self) -> DeclaredPrice | None:
        """The declared price of the trial's tokens; None: the recorded price table holds."""
        return None if self.price is None else DeclaredPrice(self.price)


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
