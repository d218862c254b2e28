"""The watchdog: what is wrong with a running batch, named. Pure: it is fed with events and samples, and has no clock.

Every look computes all that is wrong now; what is new is raised, what is gone is cleared. A policy of `[run]` may turn
an alert into an order: pause or stop a profile, run fewer trials at once.
"""

from collections import deque
from dataclasses import dataclass, field

from terminalbench.experiments.tables import RunTable
from terminalbench.faults import ErrorClass
from terminalbench.live.notices import Alert, AlertKey
from terminalbench.live.state import LiveState
from terminalbench.records.event import Event
from terminalbench.text.numbers import duration, size

STREAK = 2
"""So many endings of a profile in a row, all of one cause, are no accident."""

ENVIRONMENT_STREAK = 3
PRESSURE_LEVEL = 2
PRESSURE_HITS = 5
PRESSURE_SEC = 300.0
LOW_DISK_MB = 512.0
LOW_MEMORY_MB = 256.0
CLOCK_SEC = 30.0
CLOCK_SHOWN_SEC = 300.0
SILENT_SEC = 60.0
_SPOKEN = {
    ErrorClass.AUTH: "authentication failed",
    ErrorClass.CREDIT: "the account had no credit",
    ErrorClass.SETUP: "the agent did not start",
}


@dataclass(frozen=True)
class AlertChange:
    """An alert that has come up, or one that is over."""

    alert: Alert
    raised: bool


@dataclass(frozen=True)
class WatchdogOrder:
    """The reaction of a policy to an alert: stop, pause, resume, slow or unslow a profile (`*`: all)."""

    action: str
    profile: str
    reason: str


@dataclass(frozen=True)
class MachineSample:
    """The machine and the trials at one moment. `now` never jumps, `wall` may; None means unknown.

    `quiet_sec` are seconds without new bytes by running trial, `lanes` the levels of pressure by model, `hits` the 429s
    seen since the last sample by running trial, `silent_sec` seconds since a profile's Harbor gave a sign of life.
    """

    now: float
    wall: float
    free_mb: float | None = None
    memory_mb: float | None = None
    quiet_sec: dict[str, float] = field(default_factory=dict)
    lanes: dict[str, int] = field(default_factory=dict)
    hits: dict[str, int] = field(default_factory=dict)
    silent_sec: dict[str, float] = field(default_factory=dict)


@dataclass
class Watchdog:
    """Follows one run."""

    policy: RunTable = field(default_factory=RunTable)
    standing: dict[AlertKey, Alert] = field(default_factory=dict)
    state: LiveState = field(default_factory=LiveState)
    _streaks: dict[str, tuple[str | None, int]] = field(default_factory=dict)
    _environment: tuple[int, str] = (0, "")
    _last_words: dict[str, str] = field(default_factory=dict)
    _dead: dict[str, str] = field(default_factory=dict)
    _back: set[str] = field(default_factory=set)
    _hits: deque[tuple[float, str, int]] = field(default_factory=deque)
    _new_hits: dict[str, int] = field(default_factory=dict)
    _seen_hits: dict[str, int] = field(default_factory=dict)
    _clock: tuple[float, float] | None = None
    _jump: tuple[float, float] | None = None

    def add(self, event: Event) -> None:
        """Take an event of the run into account."""
        self.state.apply(event)
        profile = event.profile or ""
        if event.job_died:
            self._dead[profile] = event.error or "a Harbor process ended"
            self._back.discard(profile)
        elif event.kind == "job_started":
            if ("dead_child", profile, None, None) in self.standing:
                self._dead.pop(profile, None)
            else:
                self._back.add(profile)  # a death is named, though the next Harbor is there before the next look
        elif event.kind == "trial_started":
            self._seen_hits.pop(event.trial or "", None)
        elif event.kind == "trial_ended":
            self._ended(profile, event)

    def look(self, sample: MachineSample) -> tuple[list[AlertChange], list[WatchdogOrder]]:
        """Return what has come up and what is over since the last look, and what the policies make of it."""
        found = {alert.key: alert for alert in self._alerts(sample)}
        changes = [AlertChange(alert, True) for key, alert in found.items() if key not in self.standing]
        changes += [AlertChange(alert, False) for key, alert in self.standing.items() if key not in found]
        self.standing = found
        return changes, [order for change in changes if (order := self._order(change)) is not None]

    def _ended(self, profile: str, event: Event) -> None:
        kind = event.detail.get("error_class")
        before, count = self._streaks.get(profile, (None, 0))
        self._streaks[profile] = (kind, count + 1 if kind == before else 1)
        self._last_words[profile] = event.error or ""
        broken = kind == ErrorClass.ENVIRONMENT
        self._environment = (self._environment[0] + 1 if broken else 0, event.error or "")
        hits = int(event.detail.get("rate_limit_hits") or 0) or int(kind == ErrorClass.RATE_LIMIT)
        hits -= self._seen_hits.pop(event.trial or "", 0)
        if hits > 0:
            self._new_hits[profile] = self._new_hits.get(profile, 0) + hits

    def _alerts(self, sample: MachineSample) -> list[Alert]:
        return [
            *self._stalls(sample),
            *self._streak_alerts(),
            *self._pressure(sample),
            *_machine(sample),
            *self._clock_jump(sample),
            *self._children(sample),
        ]

    def _stalls(self, sample: MachineSample) -> list[Alert]:
        found = []
        for trial in self.state.running:
            quiet = sample.quiet_sec.get(trial.name, 0.0)
            if quiet >= self.policy.stall_sec:
                message = f"{trial.name}: no activity for {duration(quiet)} (phase {trial.phase})"
                found.append(Alert("stall", message, profile=trial.profile, trial=trial.name))
        return found

    def _streak_alerts(self) -> list[Alert]:
        found = []
        for profile, (kind, count) in self._streaks.items():
            if count >= STREAK and _policy(kind) is not None:
                words = f"{_SPOKEN[ErrorClass(kind)]} {count} times in a row: {self._last_words[profile]}"
                found.append(Alert(str(kind), f"{profile}: {words}", "error", profile))
        count, words = self._environment
        if count >= ENVIRONMENT_STREAK:
            found.append(
                Alert("environment", f"{count} environments in a row did not start or broke: {words}", "error")
            )
        return found

    def _pressure(self, sample: MachineSample) -> list[Alert]:
        for trial in self.state.running:
            if hits := sample.hits.get(trial.name):
                self._seen_hits[trial.name] = self._seen_hits.get(trial.name, 0) + hits
                self._hits.append((sample.now, trial.profile, hits))
        self._hits.extend((sample.now, profile, hits) for profile, hits in self._new_hits.items())
        self._new_hits = {}
        while self._hits and sample.now - self._hits[0][0] > PRESSURE_SEC:
            self._hits.popleft()
        found = [
            Alert("rate_limit", f"{lane}: rate limited repeatedly; its trials wait", model=lane)
            for lane, level in sample.lanes.items()
            if level >= PRESSURE_LEVEL
        ]
        totals: dict[str, int] = {}
        for _, profile, hits in self._hits:
            totals[profile] = totals.get(profile, 0) + hits
        found += [
            Alert("rate_limit", f"{profile}: {hits} answers 429 in {duration(PRESSURE_SEC)}", profile=profile)
            for profile, hits in totals.items()
            if hits >= PRESSURE_HITS
        ]
        return found

    def _clock_jump(self, sample: MachineSample) -> list[Alert]:
        before, self._clock = self._clock, (sample.now, sample.wall)
        if before is not None:
            jump = (sample.wall - before[1]) - (sample.now - before[0])
            if abs(jump) > CLOCK_SEC:
                self._jump = (sample.now, jump)
        if self._jump is None or sample.now - self._jump[0] > CLOCK_SHOWN_SEC:
            return []
        jumped = duration(self._jump[1], sign=True)
        return [Alert("clock", f"the clock jumped by {jumped}; times of running trials are unreliable")]

    def _children(self, sample: MachineSample) -> list[Alert]:
        found = [Alert("dead_child", f"{profile}: {why}", "error", profile) for profile, why in self._dead.items()]
        for profile in self._back:
            self._dead.pop(profile, None)
        self._back = set()
        found += [
            Alert("silent_child", f"{profile}: Harbor gave no sign of life for {duration(quiet)}", "error", profile)
            for profile, quiet in sample.silent_sec.items()
            if quiet >= SILENT_SEC
        ]
        return found

    def _order(self, change: AlertChange) -> WatchdogOrder | None:
        alert = change.alert
        profile = alert.profile or "*"
        if alert.cause == "disk":
            return WatchdogOrder("pause" if change.raised else "resume", "*", alert.message)
        if alert.cause == "rate_limit" and alert.profile and self.policy.on_rate_limit == "slow":
            return WatchdogOrder("slow" if change.raised else "unslow", profile, alert.message)
        key = _policy(alert.cause)
        wanted = getattr(self.policy, key) if key is not None else "continue"
        return WatchdogOrder(wanted, profile, alert.message) if change.raised and wanted != "continue" else None


def _policy(kind: str | None) -> str | None:
    """The key of `[run]` that says what a streak of these errors leads to; None: nothing."""
    return ErrorClass(kind).stops if kind in _SPOKEN else None


def _machine(sample: MachineSample) -> list[Alert]:
    found = []
    if sample.free_mb is not None and sample.free_mb < LOW_DISK_MB:
        found.append(
            Alert("disk", f"only {size(1024**2 * sample.free_mb)} are free on the disk of the results", "error")
        )
    if sample.memory_mb is not None and sample.memory_mb < LOW_MEMORY_MB:
        found.append(Alert("memory", f"only {size(1024**2 * sample.memory_mb)} of memory are free on this machine"))
    return found
