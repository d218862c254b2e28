"""What a person should read of a batch: notes, orders to the run, dead jobs, and what an unknown kind of event says."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from terminalbench.records import Event

KEPT = 50
_TEXT = ("message", "reason", "what")
_WORST_FIRST = {"critical": 0, "error": 0, "warning": 1}


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
    def rank(self) -> tuple[int, float]:
        """Worse before harmless, then new before old."""
        return (_WORST_FIRST.get(self.severity, 2), -(self.time or 0.0))


@dataclass
class Notices:
    """The last notices; one that is said again is counted and renewed."""

    found: OrderedDict[tuple[str, str | None, str], Notice] = field(default_factory=OrderedDict)

    def add(self, notice: Notice) -> None:
        """Keep a notice."""
        key = (notice.kind, notice.profile, notice.text)
        before = self.found.pop(key, None)
        count = before.count + 1 if before is not None else 1
        self.found[key] = Notice(notice.kind, notice.severity, notice.text, notice.time, notice.profile, count)
        while len(self.found) > KEPT:
            self.found.popitem(last=False)

    def worst(self) -> list[Notice]:
        """All that are kept, the most important first."""
        return sorted(self.found.values(), key=lambda notice: notice.rank)


def notice_of(event: Event, time: float | None) -> Notice:
    """What an event says: its error, else the text in its detail, else the detail itself."""
    detail = event.detail
    if event.resumed is not None:
        text = "resumed: " + ", ".join(f"{count} of {profile}" for profile, count in event.resumed.items())
        return Notice(event.kind, "info", text, time)
    text = event.error or _said(detail)
    if event.kind == "control":
        order = (detail.get("action"), detail.get("target") or event.trial, detail.get("value"))
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
