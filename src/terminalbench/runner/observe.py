"""What the watchdog looks at: the disk, the memory, the clocks, and whether running trials do anything."""

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import msgspec

from terminalbench.experiments.batch import Batch
from terminalbench.files import open_plain
from terminalbench.harbor.limits.gate import Gate
from terminalbench.records import Event
from terminalbench.runner.preflight import free_mb
from terminalbench.runner.watchdog import Sample
from terminalbench.sandbox.activity import FILE_NAME as ACTIVITY
from terminalbench.sandbox.activity import HITS, live_hits

_MOST_FILES = 2000
_MOST_BYTES = 256 << 10
_AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB", re.MULTILINE)


def memory_mb() -> float | None:
    """Megabytes of memory that this machine could still give out."""
    try:
        match = _AVAILABLE.search(Path("/proc/meminfo").read_text(encoding="ascii"))
    except (OSError, UnicodeDecodeError):
        return None
    return int(match[1]) / 1024 if match else None


@dataclass
class _Trial:
    profile: str
    folder: Path
    changed_at: float
    state: tuple[int, int] = (0, 0)
    offsets: dict[Path, int] = field(default_factory=dict)
    own_hits: int = 0
    seen_hits: int = 0


@dataclass
class Observer:
    """Takes samples of one batch. Every source can be replaced, for tests and for machines that have none of it."""

    batch: Batch
    gate: Gate
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    free_mb: Callable[[Path], float | None] = free_mb
    memory_mb: Callable[[], float | None] = memory_mb
    _trials: dict[str, _Trial] = field(default_factory=dict)
    _heard: dict[str, float] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Take an event into account: which trials run, and which Harbor lives."""
        now = self.clock()
        profile = event.profile or ""
        if event.kind == "job_ended":
            self._heard.pop(profile, None)
            return
        if event.job_died:
            self._heard.pop(profile, None)
            self._trials = {t: found for t, found in self._trials.items() if found.profile != profile}
            return
        if event.job and event.kind not in ("note", "alert", "resumed"):
            self._heard[profile] = now
        if event.trial is None:
            return
        if event.kind == "trial_started":
            folder = self.batch.job_folder(event.job) / event.trial
            self._trials[event.trial] = _Trial(profile, folder, now)
        elif event.kind in ("trial_ended", "trial_held"):
            self._trials.pop(event.trial, None)
        elif event.kind == "trial_phase" and event.trial in self._trials:
            self._trials[event.trial].changed_at = now

    def sample(self) -> Sample:
        """The batch and the machine now."""
        now = self.clock()
        hits: dict[str, int] = {}
        quiet: dict[str, float] = {}
        for name, trial in self._trials.items():
            hits[name] = self._look(trial, now)
            quiet[name] = now - trial.changed_at
        return Sample(
            now=now,
            wall=self.wall(),
            free_mb=self.free_mb(self.batch.folder),
            memory_mb=self.memory_mb(),
            quiet_sec=quiet,
            lanes=self._lanes(),
            hits={name: count for name, count in hits.items() if count},
            silent_sec={profile: now - heard for profile, heard in self._heard.items()},
        )

    def _lanes(self) -> dict[str, int]:
        try:
            return {name: lane.level for name, lane in self.gate.read().lanes.items()}
        except (OSError, msgspec.DecodeError):
            return {}

    def _look(self, trial: _Trial, now: float) -> int:
        """Note whether the trial's files have changed; return how many 429s more its logs or sandbox tell of."""
        size, newest, hits = 0, 0, 0
        agent = trial.folder / "agent"
        logs = (Path(root) / name for root, _, names in os.walk(agent) for name in names)
        for path in (trial.folder / ACTIVITY, *islice(logs, _MOST_FILES)):
            try:
                found = path.lstat()
            except OSError:
                continue
            size, newest = size + found.st_size, max(newest, found.st_mtime_ns)
            if path.parent != trial.folder and found.st_size > trial.offsets.get(path, 0):
                hits += _new_hits(path, trial.offsets, found.st_size)
        # What the sandbox has told of comes out again as files when its agent is through: not the sum, but the larger.
        trial.own_hits += hits
        before, trial.seen_hits = trial.seen_hits, max(trial.seen_hits, trial.own_hits, live_hits(trial.folder))
        if (size, newest) != trial.state:
            trial.state, trial.changed_at = (size, newest), now
        return trial.seen_hits - before


def _new_hits(path: Path, offsets: dict[Path, int], size: int) -> int:
    start = max(offsets.get(path, 0), size - _MOST_BYTES)
    offsets[path] = size
    with open_plain(path) as stream:
        if stream is None:
            return 0
        try:
            stream.seek(start)
            return len(HITS.findall((stream.read(_MOST_BYTES) or b"").decode(errors="replace")))
        except OSError:
            return 0
