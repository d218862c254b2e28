"""The watchdog at work in a run: it looks every few seconds, writes alerts as events, and carries out its orders."""

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import HARBOR_PARALLEL, Plan
from terminalbench.files import append_jsonl, read_jsonl
from terminalbench.harbor.limits.control import Control, ControlFile
from terminalbench.live.notices import Alert, AlertKey, Alerts
from terminalbench.records import Event, EventKind, stamp
from terminalbench.runner import control
from terminalbench.runner.observe import Observer
from terminalbench.runner.watchdog import Order, Watchdog

LOOK_SEC = 5.0
URGENT_SEC = 0.5
BY = "watchdog"


@dataclass
class Guard:
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
        changes, orders = self._watchdog.look(self.observer.sample())
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

    def _carry_out(self, order: Order) -> None:
        planned = self.plan.settings.parallel or HARBOR_PARALLEL
        names = {"slow": "set", "unslow": "set"}
        name = order.profile
        now: list[int] = []

        def change(found: Control) -> None:
            """What a person has said since is left as it is."""
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
            said = control.Order(names.get(order.action, order.action), (), order.reason, value)
            control.note(self.batch, said, order.profile, by=BY)
        except OSError:
            return  # a full disk: new trials cannot start on it either

    def _write(self, alert: Alert, state: str) -> None:
        now = stamp(datetime.now(UTC))
        since = self._since.setdefault(alert.key, alert.since or now)
        if state == "cleared":
            self._since.pop(alert.key, None)
        detail = {"cause": alert.cause, "severity": alert.severity, "message": alert.message, "since": since}
        if alert.model is not None:
            detail["model"] = alert.model
        event = Event(
            now,
            EventKind.ALERT,
            "",
            os.getpid(),
            alert.profile,
            alert.trial,
            error=alert.message,
            detail={**detail, "state": state},
        )
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
