"""`--workers auto`: the machine is read now and then, and says how many workers it bears."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from terminalbench.experiments.config import Experiment
from terminalbench.overnight.autoscale import Decision, Limits, Reading, Scale, decide
from terminalbench.overnight.machine import Machine

READ_SEC = 5.0
MOST_WORKERS = 16
_HARBORS_OWN = 4
"""Trials at once of a job that says nothing of it."""


@dataclass
class Scaler:
    """Reads the machine at most every `READ_SEC` and decides; `limits` hold whatever it says."""

    limits: Limits
    read: Callable[[Iterable[int]], Reading] = field(default_factory=lambda: Machine().read)
    clock: Callable[[], float] = time.monotonic
    _scale: Scale = field(default_factory=Scale)
    _read_at: float | None = None

    def decide(self, workers: Sequence[int]) -> Decision | None:
        """How many workers there should be; None: it is too early to ask again. `workers` are their pids."""
        now = self.clock()
        if self._read_at is not None and now - self._read_at < READ_SEC:
            return None
        self._read_at = now
        reading = self.read(workers)
        decision = decide(reading, self._scale, self.limits)
        self._scale = decision.applied(self._scale, reading.at_sec)
        return decision


def limits_of(base: Experiment) -> Limits:
    """What bounds the workers of a night: each runs the trials of its profiles side by side."""
    profiles = base.run.profiles_parallel or len(base.profiles)
    return Limits(most=MOST_WORKERS, trials=(base.run.parallel or _HARBORS_OWN) * min(profiles, len(base.profiles)))
