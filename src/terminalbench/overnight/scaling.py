"""`--workers auto`: the machine is read now and then, and says how many workers it bears."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from terminalbench.experiments.experiment import Experiment
from terminalbench.experiments.plan import HARBOR_PARALLEL
from terminalbench.overnight.autoscale import MachineReading, Scale, ScaleDecision, ScaleLimits, decide
from terminalbench.overnight.models import ModelKind, is_local
from terminalbench.overnight.night import NightConfig

_UNLIMITED = 1 << 60
"""What version 1 of cgroups writes for no limit is about this, in bytes; so much memory no machine has."""
_MB = 1024 * 1024


@dataclass(frozen=True)
class MachineReader:
    """Where the kernel tells of itself; tests have recorded files there."""

    proc: Path = Path("/proc")
    cgroups: Path = Path("/sys/fs/cgroup")

    def read(self, workers: Iterable[int] = ()) -> MachineReading:
        """Return what the machine says now. `workers` are the pids of workers, to see what they need."""
        groups = list(self._groups())
        memory = _pressure(_text(self.proc / "pressure/memory"))
        own = [_pressure(_text(group / "memory.pressure")) for group in groups]
        free = [self._host_mb(), *(_headroom_mb(group) for group in groups)]
        load = (_text(self.proc / "loadavg") or "").split()
        return MachineReading(
            at_sec=time.monotonic(),
            cpus=self._cpus(groups),
            available_mb=min((one for one in free if one is not None), default=None),
            load=float(load[0]) if load else None,
            waits_memory=_largest([memory.get("some"), *(one.get("some") for one in own)]),
            stalls_memory=_largest([memory.get("full"), *(one.get("full") for one in own)]),
            stalls_io=_pressure(_text(self.proc / "pressure/io")).get("full"),
            worker_mb=self._largest_mb(workers),
        )

    def processes_left(self) -> int | None:
        """Return how many processes may still be started, within the limits of the cgroups; None without a limit."""
        left = []
        for group in self._groups():
            most, now = _text(group / "pids.max"), _text(group / "pids.current")
            if most is not None and now is not None and most.isdecimal() and now.isdecimal():
                left.append(max(0, int(most) - int(now)))
        return min(left, default=None)

    def _host_mb(self) -> float | None:
        for line in (_text(self.proc / "meminfo") or "").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) / 1024
        return None

    def _groups(self) -> Iterator[Path]:
        """The folders of the cgroups with a limit of memory or processors that we are in, from ours to the top."""
        for line in (_text(self.proc / "self/cgroup") or "").splitlines():
            _, controllers, path = line.split(":", 2)
            names = (
                [name for name in controllers.split(",") if name in ("memory", "cpu", "pids")] if controllers else [""]
            )
            for top in (self.cgroups / name for name in names):
                place = top / path.lstrip("/")
                if not place.is_dir():
                    place = top  # a container sees its own cgroup as the top
                while place != top:
                    yield place
                    place = place.parent
                yield top

    def _cpus(self, groups: Iterable[Path]) -> float:
        quotas = (_quota(group) for group in groups)
        return min([float(len(os.sched_getaffinity(0))), *(quota for quota in quotas if quota is not None)])

    def _largest_mb(self, workers: Iterable[int]) -> float | None:
        """Return what the largest of these processes takes with its descendants: memory that it shares with no
        other."""
        roots = set(workers)
        if not roots:
            return None
        own, parents = {}, {}
        for folder in self.proc.iterdir():
            fields = (_text(folder / "stat") or "").rpartition(")")[2].split() if folder.name.isdecimal() else []
            pages = (_text(folder / "statm") or "").split()
            if len(fields) > 1 and len(pages) > 2:
                parents[int(folder.name)] = int(fields[1])
                own[int(folder.name)] = (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE") / _MB
        sums = dict.fromkeys(roots, 0.0)
        for pid, size in own.items():
            above = pid
            while above in parents and above not in roots:
                above = parents[above]
            if above in roots:
                sums[above] += size
        return max(sums.values()) or None


def _headroom_mb(group: Path) -> float | None:
    """Return what a cgroup may still take: its limit less what it uses, caches that can be dropped not counted."""
    for limits, usage, cache in (
        (("memory.max", "memory.high"), "memory.current", "inactive_file"),
        (("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file"),
    ):
        found = [int(text) for name in limits if (text := _text(group / name)) is not None and text.isdecimal()]
        limit, used = min(found, default=_UNLIMITED), _text(group / usage)
        if limit < _UNLIMITED and used is not None and used.isdecimal():
            lines = dict(
                line.split(" ", 1) for line in (_text(group / "memory.stat") or "").splitlines() if " " in line
            )
            return max(0, limit - int(used) + int(lines.get(cache, "0"))) / _MB
    return None


def _quota(group: Path) -> float | None:
    """Return how many processors a cgroup may use; None without a limit."""
    text = _text(group / "cpu.max")
    if text is None:
        quota, period = _text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")
        text = f"{quota} {period}"
    parts = text.split()
    if len(parts) == 2 and all(part.isdecimal() for part in parts) and int(parts[1]):
        return int(parts[0]) / int(parts[1])
    return None


def _pressure(text: str | None) -> dict[str, float]:
    """The shares of the last 10 s in percent, by their kind (`some`, `full`)."""
    found = {}
    for line in (text or "").splitlines():
        kind, *values = line.split()
        shares = dict(value.partition("=")[::2] for value in values)
        if "avg10" in shares:
            found[kind] = float(shares["avg10"])
    return found


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None


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
        """Return how many workers there should be; None: it is too early to ask again. `workers` are their pids."""
        now = self.clock()
        if self._read_at is not None and now - self._read_at < READ_SEC:
            return None
        self._read_at = now
        reading = self.read(workers)
        decision = decide(reading, self._scale, self.limits)
        self._scale = decision.applied(self._scale, reading.at_sec)
        return decision


def limits_of(base: Experiment, config: NightConfig, environment: Mapping[str, str]) -> ScaleLimits:
    """Return what bounds the workers of a night: each runs the trials of its profiles side by side.

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
