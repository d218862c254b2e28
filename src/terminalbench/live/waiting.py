"""What the trials that do not start yet are waiting for, from the events of a run."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from terminalbench.records import Event

_LEAVES = ("trial_started", "trial_held", "trial_cancelled", "trial_ended")


class Waiting(msgspec.Struct, frozen=True, omit_defaults=True):
    """A trial that waits: for what, and until when (UTC, ISO 8601), if that is known."""

    profile: str
    trial: str
    cause: str
    reason: str
    until: str | None = None

    def left_sec(self, now: datetime) -> float | None:
        """Seconds left, None when nobody knows."""
        if self.until is None:
            return None
        try:
            return max(0.0, (datetime.fromisoformat(self.until) - now).total_seconds())
        except ValueError:
            return None


@dataclass
class WaitingRoom:
    """Follows the events; a trial leaves when it starts, is held for good or ended by an order, or its job ends."""

    trials: dict[str, Waiting] = field(default_factory=dict)
    _jobs: dict[str, str] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Take one event into account."""
        if event.kind in ("job_started", "job_ended") or event.names_a_death:
            for trial in [trial for trial, job in self._jobs.items() if job == event.job]:
                self._leave(trial)
        elif event.trial is None:
            return
        elif event.kind == "trial_waiting":
            cause, until = str(event.detail.get("cause") or ""), event.detail.get("until")
            where = event.profile or ""
            self.trials[event.trial] = Waiting(where, event.trial, cause, event.error or cause, until)
            self._jobs[event.trial] = event.job
        elif event.kind in _LEAVES or (event.kind == "control" and event.detail.get("done")):
            self._leave(event.trial)

    def lines(self, now: datetime | None = None) -> list[str]:
        """One line a reason: how long until the next of its trials starts, and how many there are."""
        moment = now or datetime.now(UTC)
        by_reason: dict[str, list[Waiting]] = {}
        for waiting in self.trials.values():
            by_reason.setdefault(waiting.reason, []).append(waiting)
        return [_line(reason, found, moment) for reason, found in by_reason.items()]

    def _leave(self, trial: str) -> None:
        self.trials.pop(trial, None)
        self._jobs.pop(trial, None)


def _line(reason: str, found: list[Waiting], now: datetime) -> str:
    left = [seconds for waiting in found if (seconds := waiting.left_sec(now)) is not None]
    time = f" {min(left):.0f} s" if left else ""
    many = f" ({len(found)} trials)" if len(found) > 1 else ""
    return f"waiting{time}: {reason}{many}"
