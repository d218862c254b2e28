"""The notices of a batch for a person: what the watchdog found wrong and still stands, and what was said lately."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from terminalbench.records.event import Event, EventKind

KEPT = 50
_TEXT = ("message", "reason", "what")
_WORST_FIRST = {"critical": 0, "error": 0, "warning": 1}

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

    @classmethod
    def of(cls, event: Event) -> "Alert":
        """The alert that an event raises or clears."""
        told = event.detail
        cause, severity = str(told.get("cause") or ""), str(told.get("severity") or "warning")
        since = str(told.get("since") or event.time)
        return cls(cause, event.error or cause, severity, event.profile, event.trial, told.get("model"), since)

    @property
    def key(self) -> AlertKey:
        """Return what makes it the same alert at the next look, though the message has changed."""
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
        found = Alert.of(event)
        if event.detail.get("state") == "cleared":
            self.standing.pop(found.key, None)
        else:
            self.standing[found.key] = found

    def worst_first(self) -> list[Alert]:
        """Errors before warnings, each in the order they were raised."""
        return sorted(self.standing.values(), key=lambda alert: alert.severity != "error")


@dataclass(frozen=True)
class Notice:
    """One thing that was said, and how often; `time` is the last."""

    kind: str
    severity: str
    text: str
    time: float | None
    profile: str | None = None
    count: int = 1

    @property
    def line(self) -> str:
        """Return what was said, of what kind and of which profile, in one line."""
        kind = self.kind if self.severity == "info" else f"{self.kind} ({self.severity})"
        return f"{kind}{f' [{self.profile}]' if self.profile else ''}: {self.text}"


@dataclass
class Notices:
    """The last notices; one that is said again is counted and renewed."""

    found: dict[tuple[str, str | None, str], Notice] = field(default_factory=dict)

    def add(self, notice: Notice) -> None:
        """Keep a notice."""
        key = (notice.kind, notice.profile, notice.text)
        before = self.found.pop(key, None)
        self.found[key] = replace(notice, count=before.count + 1) if before is not None else notice
        if len(self.found) > KEPT:
            del self.found[next(iter(self.found))]

    def worst(self) -> list[Notice]:
        """All that are kept: worse before harmless, then new before old."""
        return sorted(self.found.values(), key=lambda one: (_WORST_FIRST.get(one.severity, 2), -(one.time or 0.0)))


def notice_of(event: Event, time: float | None) -> Notice:
    """Return what an event says: its error, else the text in its detail, else the detail itself."""
    detail = event.detail
    if event.resumed is not None:
        text = "resumed: " + ", ".join(f"{count} of {profile}" for profile, count in event.resumed.items())
        return Notice(event.kind, "info", text, time)
    text = event.error or _said(detail)
    if event.kind == "control":
        target = detail.get("target") or event.trial
        order = (detail.get("action"), target if target != event.profile else None, detail.get("value"))
        text = f"{' '.join(str(part) for part in order if part)}: {text}" + (" (done)" if detail.get("done") else "")
    cause = str(detail.get("cause") or "")
    text = ": ".join(part for part in (cause, text) if part)
    text = text or ", ".join(f"{name} {value}" for name, value in detail.items()) or "no text"
    severity = str(detail.get("severity") or ("warning" if event.kind == "alert" else "info"))
    return Notice(event.kind, severity, text, time, event.profile)


def _said(detail: Mapping[str, Any]) -> str:
    """The text in a detail, or in a table of it."""
    direct = next((str(detail[name]) for name in _TEXT if detail.get(name)), None)
    if direct is not None:
        return direct
    nested = ((name, _said(value)) for name, value in detail.items() if isinstance(value, dict))
    return next((f"{name}: {text}" for name, text in nested if text), "")
