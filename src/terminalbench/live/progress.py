"""How far a run is, from its events: counts, spend, time left, and one line a person can read."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from terminalbench.experiments.plan import JobSpec, Plan
from terminalbench.live.alerts import AlertBoard
from terminalbench.live.ended import EndedTrials
from terminalbench.live.waiting import WaitingRoom
from terminalbench.records import Event


@dataclass
class Progress:
    """Counts the events of a run. Which trials count is decided as in the summary: see `EndedTrials`."""

    ended: EndedTrials
    started_at: float
    free: frozenset[str] = frozenset()
    running: set[tuple[str, str]] = field(default_factory=set)
    cost_usd: float = 0.0
    cost_known: int = 0
    cost_unknown: int = 0
    held: dict[tuple[str, str], str] = field(default_factory=dict)
    waiting: WaitingRoom = field(default_factory=WaitingRoom)
    alerts: AlertBoard = field(default_factory=AlertBoard)
    _done_before: int = 0
    _cut_short: bool = False

    @classmethod
    def of_plan(cls, plan: Plan, started_at: float) -> "Progress":
        """The progress of a whole batch, from its first event on."""
        return cls(EndedTrials.of_plan(plan), started_at, plan.without_model())

    @classmethod
    def of_jobs(cls, jobs: Iterable[JobSpec], started_at: float) -> "Progress":
        """The progress of these jobs alone."""
        return cls(EndedTrials.of_jobs(jobs), started_at)

    def replan(self, plan: Plan) -> None:
        """Take in a plan that has grown, or in which more was run again."""
        self.ended, self.free = EndedTrials.of_plan(plan, self.ended), plan.without_model()

    def add(self, event: Event) -> None:
        """Take one event into account; those of unknown profiles are passed over."""
        self.waiting.add(event)
        self.alerts.add(event)
        if event.kind == "note" and "resumed" in event.detail:
            self._begin_again()
        if event.kind == "job_ended" or event.names_a_death:
            self.running = {place for place in self.running if place[0] != event.job}
            self.held = {place: profile for place, profile in self.held.items() if place[0] != event.job}
        if event.profile not in self.ended.planned or event.trial is None:
            return
        place = (event.job, event.trial)
        if event.kind == "trial_started":
            self.running.add(place)
            self.ended.started[place] = event.time
        elif event.kind == "trial_held":
            self.running.discard(place)
            self.held[place] = event.profile
            self._cut_short = True
        elif event.kind == "trial_ended":
            self.running.discard(place)
            self._charge(event)
            self.ended.add(event)

    def _begin_again(self) -> None:
        """A batch goes on: what was cut off runs no more, and what was done says nothing about the pace."""
        self.running.clear()
        self.waiting.trials.clear()
        self.held.clear()
        self._cut_short = False
        self._done_before = self.done

    def _charge(self, event: Event) -> None:
        if event.usage is not None and event.usage.cost_usd is not None:
            self.cost_usd += event.usage.cost_usd
            self.cost_known += 1
        elif event.profile not in self.free:
            self.cost_unknown += 1

    @property
    def spent_usd(self) -> float | None:
        """What is known to be spent; None when nothing is."""
        return self.cost_usd if self.cost_known or not self.cost_unknown else None

    @property
    def total(self) -> int:
        """Trials that will run, or have."""
        return sum(self.ended.planned.values())

    @property
    def done(self) -> int:
        """Trials that have ended and count; a cancelled one is not done, a resume runs it again."""
        return sum(map(self.ended.done, self.ended.planned))

    @property
    def outcomes(self) -> Counter[str]:
        """How the trials that count ended, all profiles together."""
        counts: Counter[str] = Counter()
        for own in self.ended.outcomes.values():
            counts.update(own)
        return counts

    def eta_sec(self, now: float) -> float | None:
        """Seconds left at the pace since it started or went on; None until something ended, or if not all will run."""
        lately = self.done - self._done_before
        if self._cut_short:
            return None
        return (now - self.started_at) / lately * (self.total - self.done) if lately > 0 else None

    def waiting_lines(self) -> list[str]:
        """Where nothing new starts, and what trials wait for."""
        shut = [profile for profile in self.ended.planned if profile in self.held.values()]
        where = f" in {', '.join(shut)}" if len(shut) < len(self.ended.planned) else ""
        held = [f"nothing new starts{where}: waiting for the running trials"] if shut else []
        return [*held, *self.waiting.lines()]

    def line(self, now: float) -> str:
        """One line: done of planned, outcomes, spend, time left."""
        counts = self.outcomes
        parts = [f"{self.done}/{self.total} trials"]
        parts += [
            f"{counts[name]} {name}"
            for name in ("passed", "failed", "timed_out", "errored", "cancelled")
            if counts[name]
        ]
        if self.running:
            parts.append(f"{len(self.running)} running")
        parts += self.waiting_lines()
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
