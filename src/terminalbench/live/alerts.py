"""The alerts that stand, from the events of a run."""

from dataclasses import dataclass, field

import msgspec

from terminalbench.records import Event

KIND = "alert"

type AlertKey = tuple[str, str | None, str | None, str | None]
"""Cause, profile, trial and model."""


class Standing(msgspec.Struct, frozen=True, omit_defaults=True):
    """An alert that was raised and not cleared since."""

    cause: str
    severity: str
    message: str
    since: str
    profile: str | None = None
    trial: str | None = None
    model: str | None = None

    @property
    def key(self) -> AlertKey:
        """What makes it the same alert, though the message has changed."""
        return self.cause, self.profile, self.trial, self.model


@dataclass
class AlertBoard:
    """Follows the events."""

    standing: dict[AlertKey, Standing] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Take one event into account."""
        if event.kind != KIND:
            return
        told = event.detail
        cause, severity = str(told.get("cause") or ""), str(told.get("severity") or "warning")
        since, model = str(told.get("since") or event.time), told.get("model")
        found = Standing(cause, severity, event.error or cause, since, event.profile, event.trial, model)
        if told.get("state") == "cleared":
            self.standing.pop(found.key, None)
        else:
            self.standing[found.key] = found

    def lines(self) -> list[str]:
        """One line each, errors first."""
        found = sorted(self.standing.values(), key=lambda alert: alert.severity != "error")
        return [f"{alert.severity} ({alert.cause}): {alert.message}" for alert in found]
