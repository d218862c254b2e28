"""`--workers auto`: the machine is read now and then, and says how many workers it bears.

The decision is pure. Down is quick: memory that runs short, or processes that wait for it, take workers away before the
machine swaps. Up is slow: one worker at a time, after a quiet interval, and only where there would still be room with
one more; after each step down the next step up waits twice as long. What is unknown never adds a worker. A decision
kills nothing: the supervisor lets workers end with their iteration or, when it is `urgent`, has them stop at once and
resumes later.
"""

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from terminalbench.experiments.experiment import Experiment
from terminalbench.experiments.plan import HARBOR_PARALLEL
from terminalbench.overnight.models import ModelKind, is_local
from terminalbench.overnight.night import NightConfig


@dataclass(frozen=True)
class MachineReading:
    """What a machine says of itself; None is unknown. Pressure is the share of the last 10 s in percent (PSI).

    `available_mb` is what can be had without swapping, within the limits of the cgroup. `waits_*`: some process waited
    for it, `stalls_*`: all of them did. `worker_mb` is what the largest worker takes, with all that it has started.
    """

    at_sec: float
    cpus: float
    available_mb: float | None = None
    load: float | None = None
    waits_memory: float | None = None
    stalls_memory: float | None = None
    stalls_io: float | None = None
    worker_mb: float | None = None


@dataclass(frozen=True)
class ScaleLimits:
    """What bounds the workers. Slots and sandboxes count trials: of a local model server, and of the machine.

    A worker has `trials` at once, of which `model_trials` ask the same local model. `worker_mb` is what it is taken to
    need, until one was seen to need more.
    """

    most: int
    trials: int = 1
    model_trials: int = 1
    model_slots: int | None = None
    sandboxes: int | None = None
    worker_mb: float = 512.0
    reserve_mb: float = 1024.0
    interval_sec: float = 30.0


@dataclass(frozen=True)
class Scale:
    """How many workers are wanted now (0: none was started yet), since when, and how often memory took some away."""

    workers: int = 0
    since_sec: float = 0.0
    downs: int = 0


@dataclass(frozen=True)
class ScaleDecision:
    """How many workers there should be, and why. `urgent`: to wait until an iteration ends would be too long."""

    workers: int
    reason: str
    urgent: bool = False

    def applied(self, now: Scale, at_sec: float) -> Scale:
        """The scale after this decision."""
        if self.workers == now.workers:
            return now
        downs = now.downs + (self.workers < now.workers)
        return replace(now, workers=self.workers, since_sec=at_sec, downs=downs)


WAITS_HIGH, WAITS_LOW = 10.0, 2.0
"""Percent of time that processes wait for memory: above, a worker goes; below, one may come."""
STALLS_HIGH = 5.0
"""Percent of time that nothing runs because all wait for memory."""
STALLS_IO_HIGH, STALLS_IO_LOW = 40.0, 10.0
LOAD_HIGH, LOAD_LOW = 3.0, 1.0
"""Processes that want to run, for each processor."""
_ROOM_FOR_UP = 1.5
_MOST_DOUBLINGS = 5


def decide(reading: MachineReading, now: Scale, limits: ScaleLimits) -> ScaleDecision:
    """Return how many workers there should be from now on; never fewer than one, never more than the caps."""
    cap, capped_by = _cap(limits)
    if now.workers == 0:
        return _first(reading, limits, cap, capped_by)
    if now.workers > cap:
        return ScaleDecision(cap, capped_by)
    down = _down(reading, now, limits)
    if down is not None and now.workers > 1:
        return down
    if down is not None or now.workers == cap:
        return ScaleDecision(now.workers, f"{down.reason}; one worker is kept" if down is not None else capped_by)
    against = _against_more(reading, now, limits)
    if against is not None:
        return ScaleDecision(now.workers, against)
    said = f"{_mb(reading.available_mb)} of memory are available, load {reading.load:.1f}"
    return ScaleDecision(now.workers + 1, said)


def _cap(limits: ScaleLimits) -> tuple[int, str]:
    """The most workers that may be, and what says so."""
    caps = [(limits.most, f"at most {limits.most} at once")]
    if limits.model_slots is not None:
        said = (
            f"the model server answers {limits.model_slots} requests at once, and a worker sends {limits.model_trials}"
        )
        caps.append((limits.model_slots // limits.model_trials, said))
    if limits.sandboxes is not None:
        said = f"at most {limits.sandboxes} sandboxes may run at once, and a worker needs {limits.trials}"
        caps.append((limits.sandboxes // limits.trials, said))
    count, reason = min(caps, key=lambda one: one[0])
    return max(1, count), reason


def _worker_mb(reading: MachineReading, limits: ScaleLimits) -> float:
    return max(limits.worker_mb, reading.worker_mb or 0.0)


def _first(reading: MachineReading, limits: ScaleLimits, cap: int, capped_by: str) -> ScaleDecision:
    """Return where to begin: one worker for each processor, as far as there is memory; more come with time."""
    if reading.available_mb is None:
        return ScaleDecision(1, "the available memory is unknown")
    room = (reading.available_mb - limits.reserve_mb * _ROOM_FOR_UP) / _worker_mb(reading, limits)
    by_memory, by_cpus = max(1, math.floor(room)), max(1, math.floor(reading.cpus))
    if cap <= min(by_memory, by_cpus):
        return ScaleDecision(cap, capped_by)
    if by_memory <= by_cpus:
        return ScaleDecision(by_memory, f"{_mb(reading.available_mb)} of memory are available")
    return ScaleDecision(by_cpus, f"{by_cpus} to start with, one for each processor")


def _down(reading: MachineReading, now: Scale, limits: ScaleLimits) -> ScaleDecision | None:
    """Fewer workers, if the machine bears no more: as few as the worst of its complaints asks for."""
    asked = list(_complaints(reading, now, limits))
    worst = min(asked, key=lambda one: one.workers, default=None)
    if worst is None:
        return None
    return replace(worst, workers=max(1, worst.workers), urgent=any(one.urgent for one in asked))


def _complaints(reading: MachineReading, now: Scale, limits: ScaleLimits) -> Iterator[ScaleDecision]:
    available, workers = reading.available_mb, now.workers
    settled = reading.at_sec - now.since_sec >= limits.interval_sec / 3  # what was taken away is felt after a moment
    if available is not None and available < limits.reserve_mb:
        urgent = available < limits.reserve_mb / 2
        if settled or urgent:
            missing = math.ceil((limits.reserve_mb - available) / _worker_mb(reading, limits))
            said = f"{_mb(available)} of memory are available, and {_mb(limits.reserve_mb)} are kept free"
            yield ScaleDecision(workers - missing, said, urgent)
    if not settled:
        return
    if (reading.stalls_memory or 0.0) >= STALLS_HIGH:
        said = f"everything waits for memory {reading.stalls_memory:.0f}% of the time"
        yield ScaleDecision(workers // 2, said, urgent=True)
    if (reading.waits_memory or 0.0) >= WAITS_HIGH:
        yield ScaleDecision(workers - 1, f"processes wait for memory {reading.waits_memory:.0f}% of the time")
    if (reading.stalls_io or 0.0) >= STALLS_IO_HIGH:
        yield ScaleDecision(workers - 1, f"everything waits for the disk {reading.stalls_io:.0f}% of the time")
    if reading.load is not None and reading.load / reading.cpus >= LOAD_HIGH:
        yield ScaleDecision(workers - 1, f"load {reading.load:.1f} on {reading.cpus:g} processors")


def _against_more(reading: MachineReading, now: Scale, limits: ScaleLimits) -> str | None:
    """Return why there is no further worker now."""
    if reading.available_mb is None or reading.load is None:
        return "memory or load is unknown"
    wait_sec = limits.interval_sec * 2 ** min(now.downs, _MOST_DOUBLINGS)
    if reading.at_sec - now.since_sec < wait_sec:
        return f"the next worker starts at least {wait_sec:.0f} s after the last change"
    if reading.available_mb - _worker_mb(reading, limits) < limits.reserve_mb * _ROOM_FOR_UP:
        return f"{_mb(reading.available_mb)} of memory are not enough for another worker"
    if (reading.waits_memory or 0.0) > WAITS_LOW or (reading.stalls_memory or 0.0) > 0.0:
        return "processes wait for memory"
    if (reading.stalls_io or 0.0) > STALLS_IO_LOW:
        return "processes wait for the disk"
    if reading.load / reading.cpus > LOAD_LOW:
        return f"load {reading.load:.1f} on {reading.cpus:g} processors"
    return None


def _mb(value: float | None) -> str:
    return "unknown MB" if value is None else f"{value:,.0f} MB"


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
        pairs = [(_whole(group / "pids.max"), _whole(group / "pids.current")) for group in self._groups()]
        return min((max(0, most - now) for most, now in pairs if most is not None and now is not None), default=None)

    def _host_mb(self) -> float | None:
        lines = (_text(self.proc / "meminfo") or "").splitlines()
        return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("MemAvailable:")), None)

    def _groups(self) -> Iterator[Path]:
        """The folders of the cgroups with a limit of memory or processors that we are in, from ours to the top."""
        for line in (_text(self.proc / "self/cgroup") or "").splitlines():
            _, controllers, path = line.split(":", 2)
            names = [name for name in controllers.split(",") if name in ("memory", "cpu", "pids", "")]
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
        found = [limit for name in limits if (limit := _whole(group / name)) is not None]
        limit, used = min(found, default=_UNLIMITED), _whole(group / usage)
        if limit < _UNLIMITED and used is not None:
            lines = (_text(group / "memory.stat") or "").splitlines()
            stat = dict(line.split(" ", 1) for line in lines if " " in line)
            return max(0, limit - used + int(stat.get(cache, "0"))) / _MB
    return None


def _quota(group: Path) -> float | None:
    """Return how many processors a cgroup may use; None without a limit."""
    old = f"{_text(group / 'cpu.cfs_quota_us')} {_text(group / 'cpu.cfs_period_us')}"
    parts = (_text(group / "cpu.max") or old).split()
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


def _whole(path: Path) -> int | None:
    """The whole number that a file holds; None for any other text, such as `max`."""
    text = _text(path)
    return int(text) if text is not None and text.isdecimal() else None


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
