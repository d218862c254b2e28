"""A batch as plain lines, for pipes and logs: one for each finished trial, one for each thing that was said. Pure."""

from dataclasses import dataclass, field

from terminalbench.live.notices import notice_of
from terminalbench.live.state import LiveState
from terminalbench.records import Event
from terminalbench.text.numbers import duration
from terminalbench.text.outcomes import ending
from terminalbench.watch.layout import clean
from terminalbench.watch.tables import price

_SILENT = ("job_started", "job_ended", "trial_started", "trial_phase", "trial_cancelled", "heartbeat")


@dataclass
class Lines:
    """Turns events into lines; why trials are held or wait is said once, and again when the reason changes."""

    said: set[tuple[str, ...]] = field(default_factory=set)

    def line(self, state: LiveState, event: Event) -> str | None:
        """What to print for an event the state has just taken in; None: nothing."""
        if event.kind == "trial_ended":
            return trial_line(state, event)
        if event.kind == "trial_held":
            return self._once(event, "held: nothing new starts", event.error or "no reason given")
        if event.kind == "trial_waiting":
            return self._once(event, "waiting", event.error or "no reason given", str(event.detail.get("cause")))
        if event.kind in _SILENT:
            return None
        cleared = " (cleared)" if event.detail.get("state") == "cleared" else ""
        return clean(f"{clock_time(event)}  {notice_of(event, None).line}{cleared}")

    def _once(self, event: Event, word: str, reason: str, cause: str | None = None) -> str | None:
        key = (word, event.profile or "", cause or reason)
        if key in self.said:
            return None
        self.said.add(key)
        return clean(f"{clock_time(event)}  {word} [{event.profile}]: {reason}")


def trial_line(state: LiveState, event: Event) -> str:
    """One finished trial: when, how far the batch is, how it ended, which, how long, how much, why."""
    trial = state.trials.get((event.job, event.trial or ""))
    total = state.total
    planned = "?" if total.planned is None else str(total.planned)
    retried = bool(event.detail.get("retried"))
    outcome = event.outcome or "errored"
    profile = state.profiles.get(event.profile or "")
    cost = event.usage.cost_usd if event.usage is not None else None
    attempt = f" #{state.attempt(trial)}" if trial is not None else ""
    why = ": ".join(str(part) for part in (event.detail.get("error_class"), event.error) if part)
    parts = [
        clock_time(event),
        f"{total.done}/{planned}",
        ending(outcome) + (", is tried again" if retried else ""),
        f"{event.task or event.trial}{attempt}",
        event.profile or "",
        duration(trial.duration) if trial is not None and not retried else "",
        price(cost, profile) if cost is not None or (profile is not None and profile.free) else "cost unknown",
        why if outcome != "passed" else "",
    ]
    return "  ".join(clean(part) for part in parts if part)


def clock_time(event: Event) -> str:
    """The time of day of an event, UTC, as it stands in it."""
    return clean(event.time[11:19] or "--:--:--")
