"""The alerts of a batch: what the watchdog found wrong, and which of it still stands."""

from dataclasses import dataclass, field

import msgspec

from terminalbench.records import Event, EventKind

type AlertKey = tuple[str, str | None, str | None, str | None]
"""Cause, profile, trial and model."""


class Alert(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something is wrong: its cause, in one word, what a person should read, and since when it stands."""

    cause: str
    message: str
    severity: str = "warning"
    profile: str | None = None
    trial: str | None = None
    model: str | None = None
    since: str | None = None

    @property
    def key(self) -> AlertKey:
        """What makes it the same alert at the next look, though the message has changed."""
        return self.cause, self.profile, self.trial, self.model

    @property
    def line(self) -> str:
        """It in one line."""
        return f"{self.severity} ({self.cause}): {self.message}"


@dataclass
class Alerts:
    """Those that were raised and not cleared since, by the events of a batch."""

    standing: dict[AlertKey, Alert] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Take one event into account."""
        if event.kind != EventKind.ALERT:
            return
        told = event.detail
        cause, severity = str(told.get("cause") or ""), str(told.get("severity") or "warning")
        since, model = str(told.get("since") or event.time), told.get("model")
        found = Alert(cause, event.error or cause, severity, event.profile, event.trial, model, since)
        if told.get("state") == "cleared":
            self.standing.pop(found.key, None)
        else:
            self.standing[found.key] = found

    def worst_first(self) -> list[Alert]:
        """Errors before warnings, each in the order they were raised."""
        return sorted(self.standing.values(), key=lambda alert: alert.severity != "error")
