"""How many workers a machine bears: a pure decision on what was read from it.

Down is quick: memory that runs short, or processes that wait for it, take workers away before the machine swaps. Up is
slow: one worker at a time, after a quiet interval, and only where there would still be room with one more; after each
step down the next step up waits twice as long. What is unknown never adds a worker. A decision kills nothing: the
supervisor lets workers end with their iteration or, when it is `urgent`, has them stop at once and resumes later.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace


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
    return ScaleDecision(
        now.workers + 1, f"{_mb(reading.available_mb)} of memory are available, load {_number(reading.load)}"
    )


def _cap(limits: ScaleLimits) -> tuple[int, str]:
    """The most workers that may be, and what says so."""
    caps = [(limits.most, f"at most {limits.most} at once")]
    if limits.model_slots is not None:
        each = max(1, limits.model_trials)
        said = f"the model server answers {limits.model_slots} requests at once, and a worker sends {each}"
        caps.append((limits.model_slots // each, said))
    if limits.sandboxes is not None:
        each = max(1, limits.trials)
        said = f"at most {limits.sandboxes} sandboxes may run at once, and a worker needs {each}"
        caps.append((limits.sandboxes // each, said))
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
    if not asked:
        return None
    worst = min(asked, key=lambda one: one.workers)
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


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f}"
