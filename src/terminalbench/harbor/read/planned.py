"""`planned.json` in a trial folder: what the plugin knows of the trial before it starts, for every later reader."""

from pathlib import Path

import msgspec

from terminalbench.experiments.tables import ProfilePrice
from terminalbench.files import decode_plain
from terminalbench.harbor.read.usage import Declared

PLANNED = "planned.json"
_SIZE_LIMIT = 1 << 20


class Planned(msgspec.Struct, frozen=True, omit_defaults=True):
    """The price that the profile of the trial declares, and which attempt at its task the trial is."""

    price: ProfilePrice | None = None
    attempt: int | None = None

    @property
    def prices(self) -> Declared | None:
        """What prices the tokens of the trial; None: the recorded price table."""
        return None if self.price is None else Declared(self.price)


def read_planned(trial_dir: Path) -> Planned:
    """The note in a trial folder; empty where there is none."""
    return decode_plain(f"{trial_dir}/{PLANNED}", Planned, _SIZE_LIMIT) or Planned()
