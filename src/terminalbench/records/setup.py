"""What a trial in the local sandbox started from: its image, and the set-up of its agent."""

import msgspec

SETUP_FILE = "setup.json"
"""The file of a trial that says which set-up it started from."""
ATTEMPT = "TBENCH_ATTEMPT"
"""The variable by which an agent is told which attempt of its task this is."""
ON_HOST = "host"
"""The base of a task for whose image this machine's own system stands."""


class SetupNote(msgspec.Struct, frozen=True):
    """Which set-up a trial started from, when that was made, and whether by this trial."""

    layer: str
    made_at: str
    made_here: bool
