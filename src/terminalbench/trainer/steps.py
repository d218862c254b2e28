"""How far a night of a training is, for those who watch it: told when a part begins, and as its trials end."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from terminalbench.overnight.training_report import TrainingStep
from terminalbench.records.event import Event, EventKind

SEC = 1.0
"""So often it is told at most, within a part."""


@dataclass
class TrialCounter:
    """Counts the trials of a night. `nights` are planned, of so many `trials` each at most."""

    nights: int
    trials: int
    tell: Callable[[TrainingStep], None]
    part: str = ""
    share: float = 0.0
    over: int = 0
    running: int = 0
    ran: int = 0
    _began: float = field(default_factory=time.time)
    _told: float = 0.0

    def begin(self, part: str, trials: int) -> None:
        """A part begins, of so many trials."""
        self.part, self.share, self.running = part, trials / self.trials, 0
        self._tell()

    def event(self, event: Event) -> None:
        """A trial of the part may have ended."""
        if event.kind is EventKind.TRIAL_ENDED:
            self.running += 1
            self.ran += 1
            if time.monotonic() - self._told >= SEC:
                self._tell()

    def end(self, trials: int) -> None:
        """The part is over; it had so many trials, of which some may have run before a kill."""
        self.over, self.running = self.over + trials, 0

    def _tell(self) -> None:
        self._told = time.monotonic()
        self.tell(
            TrainingStep(
                nights=self.nights,
                part=self.part,
                share=self.share,
                trials=self.trials,
                done=min(self.trials, self.over + self.running),
                ran=self.ran,
                began=self._began,
            )
        )
