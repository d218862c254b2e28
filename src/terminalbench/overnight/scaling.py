"""`--workers auto`: the machine is read now and then, and says how many workers it bears."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from terminalbench.experiments.experiment import Experiment
from terminalbench.experiments.plan import HARBOR_PARALLEL
from terminalbench.overnight.autoscale import MachineReading, Scale, ScaleDecision, ScaleLimits, decide
from terminalbench.overnight.machine import MachineReader
from terminalbench.overnight.models import ModelKind, is_local
from terminalbench.overnight.night import NightConfig

READ_SEC = 5.0
MOST_WORKERS = 16
_DOCKER_NETWORKS = 28
"""Each trial has a network of its own; Docker's usual address pools have room for 31, not all of them ours."""
_PROCESSES = 64
"""What a sandbox is taken to need of the processes that a machine allows."""


@dataclass
class Scaler:
    """Reads the machine at most every `READ_SEC` and decides; `limits` hold whatever it says."""

    limits: ScaleLimits
    read: Callable[[Iterable[int]], MachineReading] = field(default_factory=lambda: MachineReader().read)
    clock: Callable[[], float] = time.monotonic
    _scale: Scale = field(default_factory=Scale)
    _read_at: float | None = None

    def decide(self, workers: Sequence[int]) -> ScaleDecision | None:
        """How many workers there should be; None: it is too early to ask again. `workers` are their pids."""
        now = self.clock()
        if self._read_at is not None and now - self._read_at < READ_SEC:
            return None
        self._read_at = now
        reading = self.read(workers)
        decision = decide(reading, self._scale, self.limits)
        self._scale = decision.applied(self._scale, reading.at_sec)
        return decision


def limits_of(base: Experiment, config: NightConfig, environment: Mapping[str, str]) -> ScaleLimits:
    """What bounds the workers of a night: each runs the trials of its profiles side by side.

    A server of local models answers as many at once as was declared, else that of a model file as its check found, an
    Ollama server as $OLLAMA_NUM_PARALLEL of `environment` says, or one; what others can do is unknown. Sandboxes are
    bounded as declared, else by what is known to run out: the networks of Docker, the processes of this machine.
    """
    side_by_side = min(base.run.profiles_parallel or len(base.profiles), len(base.profiles))
    parallels = [profile.parallel or base.run.parallel or HARBOR_PARALLEL for profile in base.profiles]
    parallel = max(parallels, default=HARBOR_PARALLEL)
    asked = Counter(profile.model for profile in base.profiles if is_local(profile.agent.name, profile.model))
    sandboxes = config.sandboxes
    if sandboxes is None and base.run.container_env == "docker":
        sandboxes = _DOCKER_NETWORKS
    elif sandboxes is None and base.run.container_env == "local":
        left = MachineReader().processes_left()
        sandboxes = left // _PROCESSES if left is not None else None
    return ScaleLimits(
        most=MOST_WORKERS,
        trials=parallel * side_by_side,
        model_trials=parallel * min(side_by_side, max(asked.values(), default=1)),
        model_slots=_slots(base, config, environment) if asked else None,
        sandboxes=sandboxes,
    )


def _slots(base: Experiment, config: NightConfig, environment: Mapping[str, str]) -> int | None:
    if config.model_slots is not None:
        return config.model_slots
    served = [int(model.facts["slots"]) for model in config.models if "slots" in model.facts]
    if served:
        return min(served)
    if not any(profile.agent.name == ModelKind.OLLAMA for profile in base.profiles):
        return None
    said = environment.get("OLLAMA_NUM_PARALLEL", "")
    return max(1, int(said)) if said.isdecimal() else 1
