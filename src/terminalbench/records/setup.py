"""The start of a trial in the local sandbox: its image, and the set-up of its agent."""

import msgspec

SETUP_FILE = "setup.json"
"""The file of a trial that says which set-up it started from."""
ATTEMPT = "TBENCH_ATTEMPT"
"""The variable by which an agent is told which attempt of its task this is."""
ON_HOST = "host"
"""The base of a task for whose image this machine's own system stands."""


class SetupNote(msgspec.Struct, frozen=True):
    """The set-up that a trial started from, when it was made, and whether by this trial."""

    layer: str
    made_at: str
    made_here: bool
