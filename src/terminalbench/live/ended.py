"""Which of the trials that ended count, by profile: from events, by the rule of `terminalbench.index.queries`.

Measured trials first, then errors, then cancelled ones. What is over, and what was run again on request, does not
count.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from terminalbench.experiments.plan import JobSpec, Plan
from terminalbench.index.queries import standing
from terminalbench.records import Event, Outcome

type Place = tuple[str, str, str]
"""A profile, a dataset label and a task."""


@dataclass(frozen=True)
class Ended:
    """A trial that ended; `started` is the time its events tell, "" when none does."""

    place: Place
    outcome: str
    started: str

    def rank(self) -> tuple[int, str]:
        """Where it stands among the trials of its place, of which the newest comes first."""
        first = standing(self.outcome)
        return (first, (self.started or "~") if first == 0 else "")


@dataclass
class EndedTrials:
    """The trials of a plan that ended. `planned` are the trials that run, by profile; `outcomes` those that count.

    A place that was left out takes no trial, but those it has count and were planned.
    """

    slots: Mapping[Place, int]
    left_out: frozenset[Place] = frozenset()
    run_again: frozenset[str] = frozenset()
    planned: Counter[str] = field(default_factory=Counter)
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    trials: dict[tuple[str, str], Ended] = field(default_factory=dict)
    started: dict[tuple[str, str], str] = field(default_factory=dict)
    _by_place: dict[Place, dict[tuple[str, str], Ended]] = field(default_factory=dict)
    _counted: dict[Place, Counter[str]] = field(default_factory=dict)

    @classmethod
    def of_jobs(cls, jobs: Iterable[JobSpec]) -> "EndedTrials":
        """Of jobs that run as they stand."""
        return cls._of(jobs, frozenset(), frozenset())

    @classmethod
    def of_plan(cls, plan: Plan, before: "EndedTrials | None" = None) -> "EndedTrials":
        """Of a whole plan; `before` are those of the plan as it was."""
        excluded = plan.exclusions()
        left_out = frozenset(
            (job.profile, task.label, task.ref.id)
            for job in plan.jobs
            for task in job.tasks
            if excluded(job.profile, task.ref) is not None
        )
        made = cls._of(plan.jobs, left_out, frozenset(plan.superseded))
        if before is not None:
            made.started.update(before.started)
            for key, trial in before.trials.items():
                made._take(key, trial)
        return made

    @classmethod
    def _of(cls, jobs: Iterable[JobSpec], left_out: frozenset[Place], run_again: frozenset[str]) -> "EndedTrials":
        slots: Counter[Place] = Counter()
        made = cls(slots, left_out, run_again)
        for job in jobs:
            made.planned[job.profile] += 0
            made.outcomes.setdefault(job.profile, Counter())
            for task in job.tasks:
                place = (job.profile, task.label, task.ref.id)
                slots[place] += job.attempts_of(task)
                made.planned[job.profile] += 0 if place in left_out else job.attempts_of(task)
        return made

    def add(self, event: Event) -> None:
        """Take in a trial that ended; a try that Harbor repeats by itself has not."""
        if event.detail.get("retried"):
            return
        place = (event.profile or "", event.dataset or "", event.task or "")
        key = (event.job, event.trial or "")
        self._take(key, Ended(place, event.outcome or Outcome.ERRORED, self.started.get(key, "")))

    def done(self, profile: str) -> int:
        """How many trials of a profile ended and count; cancelled ones run again."""
        own = self.outcomes[profile]
        return own.total() - own[Outcome.CANCELLED]

    def _take(self, key: tuple[str, str], trial: Ended) -> None:
        self.trials[key] = trial
        if "/".join(key) in self.run_again or trial.place[0] not in self.outcomes:
            return
        there = self._by_place.setdefault(trial.place, {})
        there[key] = trial
        newest_first = sorted(there.values(), key=lambda one: one.started, reverse=True)
        counting = sorted(newest_first, key=Ended.rank)[: self.slots.get(trial.place, 0)]
        now = Counter(one.outcome for one in counting)
        before = self._counted.get(trial.place, Counter())
        own = self.outcomes[trial.place[0]]
        own.update(now)
        own.subtract(before)
        self._counted[trial.place] = now
        if trial.place in self.left_out:
            self.planned[trial.place[0]] += now.total() - before.total()
