"""How far a run is, from its events: counts, spend, time left, and one line a person can read."""

from collections import Counter
from dataclasses import dataclass, field

from terminalbench.records import Event
from terminalbench.runner.alerts import AlertBoard
from terminalbench.runner.waiting import WaitingRoom


@dataclass
class Progress:
    """Counts the events of a run. `planned` is the number of trials that will run, by profile."""

    planned: dict[str, int]
    started_at: float
    ended: dict[str, Counter[str]] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    cost_usd: float = 0.0
    cost_unknown: int = 0
    held: int = 0
    waiting: WaitingRoom = field(default_factory=WaitingRoom)
    alerts: AlertBoard = field(default_factory=AlertBoard)
    _jobs: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ended = {profile: Counter() for profile in self.planned}

    def add(self, event: Event) -> None:
        """Take one event into account; those of unknown profiles are passed over."""
        self.waiting.add(event)
        self.alerts.add(event)
        if event.kind == "note" and "resumed" in event.detail:
            self._begin_again()
        if event.kind == "job_ended" or event.names_a_death:
            self.running -= {trial for trial in self.running if self._jobs[trial] == event.job}
        if event.profile not in self.ended or event.trial is None:
            return
        if event.kind == "trial_started":
            self.running.add(event.trial)
            self._jobs[event.trial] = event.job
        elif event.kind == "trial_held":
            self.running.discard(event.trial)
            self.held += 1
        elif event.kind == "trial_ended":
            self._trial_ended(event)

    def _begin_again(self) -> None:
        """A batch goes on: what was cut off runs no more, and what was cancelled runs again."""
        self.running.clear()
        self.waiting.trials.clear()
        self.held = 0
        for counts in self.ended.values():
            counts.pop("cancelled", None)

    def _trial_ended(self, event: Event) -> None:
        self.running.discard(event.trial or "")
        if event.usage is not None and event.usage.cost_usd is not None:
            self.cost_usd += event.usage.cost_usd
        else:
            self.cost_unknown += 1
        if not event.detail.get("retried"):
            self.ended[event.profile or ""][event.outcome or "errored"] += 1

    @property
    def total(self) -> int:
        """Trials that will run."""
        return sum(self.planned.values())

    @property
    def done(self) -> int:
        """Trials that have ended."""
        return sum(counts.total() for counts in self.ended.values())

    def eta_sec(self, now: float) -> float | None:
        """Seconds left at the pace so far; None until something has ended."""
        if not self.done:
            return None
        return (now - self.started_at) / self.done * (self.total - self.done)

    def line(self, now: float) -> str:
        """One line: done of planned, outcomes, spend, time left."""
        counts: Counter[str] = Counter()
        for ended in self.ended.values():
            counts.update(ended)
        parts = [f"{self.done}/{self.total} trials"]
        parts += [
            f"{counts[name]} {name}"
            for name in ("passed", "failed", "timed_out", "errored", "cancelled")
            if counts[name]
        ]
        if self.running:
            parts.append(f"{len(self.running)} running")
        if self.held:
            parts.append("nothing new starts: waiting for the running trials")
        parts += self.waiting.lines()
        if self.cost_usd:
            parts.append(f"${self.cost_usd:.2f}")
        eta = self.eta_sec(now)
        if eta is not None and self.done < self.total:
            parts.append(f"{clock(eta)} left")
        return f"{clock(now - self.started_at)}  " + ", ".join([parts[0], *self.alerts.lines(), *parts[1:]])


def clock(seconds: float) -> str:
    """Seconds as m:ss or h:mm:ss."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"
