"""The watchdog at work in a run: it looks every few seconds, writes alerts as events, and carries out its orders.

It looks at the disk, the memory, the clocks, and whether running trials do anything.
"""

import contextlib
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import msgspec

from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import Plan
from terminalbench.files import open_plain
from terminalbench.harbor.limits.control import Control, ControlFile
from terminalbench.harbor.limits.gate import Gate
from terminalbench.json_files import append_jsonl, read_jsonl
from terminalbench.live.model import LiveTrial
from terminalbench.live.notices import Alert, AlertKey, Alerts
from terminalbench.records.event import Event, EventKind
from terminalbench.runner import control
from terminalbench.runner.preflight import free_mb
from terminalbench.runner.watchdog import MachineSample, Watchdog, WatchdogOrder
from terminalbench.sandbox.activity import FILE_NAME as ACTIVITY
from terminalbench.sandbox.activity import count_hits, live_hits

LOOK_SEC = 5.0
URGENT_SEC = 0.5
BY = "watchdog"
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
class _WatchedTrial:
    folder: Path
    changed_at: float
    state: tuple[int, int] = (0, 0)
    offsets: dict[Path, int] = field(default_factory=dict)
    own_hits: Counter[Path] = field(default_factory=Counter)
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
    _trials: dict[str, _WatchedTrial] = field(default_factory=dict)
    _heard: dict[str, float] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Take an event into account: what trials do, and which Harbor lives."""
        now, profile = self.clock(), event.profile or ""
        if event.kind == "job_ended" or event.job_died:
            self._heard.pop(profile, None)
        elif event.job and event.kind not in ("note", "alert"):
            self._heard[profile] = now
        if event.trial is not None and event.kind == "trial_started":
            self._trials[event.trial] = _WatchedTrial(self.batch.job_folder(event.job) / event.trial, now)
        elif event.kind == "trial_phase" and event.trial in self._trials:
            self._trials[event.trial].changed_at = now

    def sample(self, running: Iterable[LiveTrial]) -> MachineSample:
        """The batch, these trials of it and the machine now."""
        now = self.clock()
        self._trials = {trial.name: self._trials[trial.name] for trial in running if trial.name in self._trials}
        hits = {name: self._look(trial, now) for name, trial in self._trials.items()}
        return MachineSample(
            now=now,
            wall=self.wall(),
            free_mb=self.free_mb(self.batch.folder),
            memory_mb=self.memory_mb(),
            quiet_sec={name: now - trial.changed_at for name, trial in self._trials.items()},
            lanes=self._lanes(),
            hits=hits,
            silent_sec={profile: now - heard for profile, heard in self._heard.items()},
        )

    def _lanes(self) -> dict[str, int]:
        try:
            return {name: lane.level for name, lane in self.gate.read().lanes.items()}
        except (OSError, msgspec.DecodeError):
            return {}

    def _look(self, trial: _WatchedTrial, now: float) -> int:
        """Note whether the trial's files have changed; return how many 429s more its logs or sandbox tell of."""
        size, newest = 0, 0
        agent = trial.folder / "agent"
        logs = (Path(root) / name for root, _, names in os.walk(agent) for name in names)
        for path in (trial.folder / ACTIVITY, *islice(logs, _MOST_FILES)):
            try:
                found = path.lstat()
            except OSError:
                continue
            size, newest = size + found.st_size, max(newest, found.st_mtime_ns)
            if path.parent != trial.folder and found.st_size > trial.offsets.get(path, 0):
                trial.own_hits[path] += _new_hits(path, trial.offsets, found.st_size)
        # Several logs tell of the same answer, and what the sandbox has told of comes out again as files when its agent
        # is through: not the sum, but the one that tells most.
        before, most = trial.seen_hits, max(trial.own_hits.values(), default=0)
        trial.seen_hits = max(trial.seen_hits, most, live_hits(trial.folder))
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
            return count_hits((stream.read(_MOST_BYTES) or b"").decode(errors="replace"))
        except OSError:
            return 0


@dataclass
class WatchdogLoop:
    """`raised` is told of every alert that comes up, whoever wants to know."""

    batch: Batch
    plan: Plan
    observer: Observer
    raised: Callable[[Alert], None] = lambda _alert: None
    look_sec: float = LOOK_SEC
    _watchdog: Watchdog = field(init=False)
    _looked_at: float | None = None
    _urgent: bool = False
    _own: dict[str, str] = field(default_factory=dict)
    _slowed: dict[str, int] = field(default_factory=dict)
    _since: dict[AlertKey, str] = field(default_factory=dict)
    _owed: dict[AlertKey, Event] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._watchdog = Watchdog(self.plan.settings)

    def begin(self) -> None:
        """Clear what an earlier run of the batch, killed without a word, left standing."""
        alerts = Alerts()
        for event in read_jsonl(self.batch.events_jsonl, Event).records:
            alerts.add(event)
        for old in alerts.worst_first():
            self._write(old, "cleared")

    def add(self, event: Event) -> None:
        """Take an event of the run into account."""
        self._watchdog.add(event)
        self.observer.add(event)
        broken = event.kind == "trial_ended" and "error_class" in event.detail
        self._urgent = self._urgent or broken or event.job_died

    def look(self) -> None:
        """Look, if it is time, or soon after a trial or a Harbor process has broken."""
        now = self.observer.clock()
        pause = min(self.look_sec, URGENT_SEC) if self._urgent else self.look_sec
        if self._looked_at is not None and now - self._looked_at < pause:
            return
        self._looked_at, self._urgent = now, False
        for key, event in list(self._owed.items()):
            self._append(key, event)
        changes, orders = self._watchdog.look(self.observer.sample(self._watchdog.state.running))
        for change in changes:
            self._write(change.alert, "raised" if change.raised else "cleared")
            if change.raised:
                self.raised(change.alert)
        for order in orders:
            self._carry_out(order)

    def end(self) -> None:
        """The run is over: a last look, and nothing stands any more."""
        self._looked_at = None
        self.look()
        for alert in list(self._watchdog.standing.values()):
            self._write(alert, "cleared")
        self._watchdog.standing = {}

    def _carry_out(self, order: WatchdogOrder) -> None:
        planned = self.plan.at_once(order.profile)
        names = {"slow": "set", "unslow": "set"}
        name = order.profile
        now: list[int] = []

        def change(found: Control) -> None:
            """Leave what a person has ordered since as it is."""
            if order.action == "stop":
                found.stopped[name] = order.reason
            elif order.action == "pause":
                if name not in found.paused:
                    self._own[name] = found.paused[name] = order.reason
            elif order.action == "resume" and found.paused.get(name) == self._own.pop(name, None):
                found.paused.pop(name, None)
            elif order.action == "slow" and name not in found.parallel:
                self._slowed[name] = found.parallel[name] = max(1, (found.at_once(name) or planned) // 2)
            elif order.action == "unslow" and found.parallel.get(name) == self._slowed.pop(name, None):
                found.parallel.pop(name, None)
            now.append(found.at_once(name) or planned)

        try:
            ControlFile(self.batch.control_json).change(change)
            value = now[0] if order.action in names else None
            said = control.ControlOrder(names.get(order.action, order.action), (), order.reason, value)
            control.note(self.batch, said, order.profile, by=BY)
        except OSError:
            return  # a full disk: new trials cannot start on it either

    def _write(self, alert: Alert, state: str) -> None:
        detail = {"cause": alert.cause, "severity": alert.severity, "message": alert.message, "state": state}
        if alert.model is not None:
            detail["model"] = alert.model
        event = Event.now(EventKind.ALERT, profile=alert.profile, trial=alert.trial, error=alert.message, detail=detail)
        detail["since"] = self._since.setdefault(alert.key, alert.since or event.time)
        if state == "cleared":
            self._since.pop(alert.key, None)
        owed = self._owed.pop(alert.key, None)
        if owed is not None and (owed.detail["state"], state) == ("raised", "cleared"):
            return  # over before a word of it could be written
        self._append(alert.key, event)

    def _append(self, key: AlertKey, event: Event) -> None:
        """Write it, now or, on a disk that is full, at a later look. Nobody is told of it twice for that."""
        self._owed[key] = event
        with contextlib.suppress(OSError):
            append_jsonl(self.batch.events_jsonl, event)
            del self._owed[key]
