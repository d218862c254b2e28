"""The state of a batch, folded from its events one at a time: no clock, no files, the same result in whatever order
the events of several trials mix. The run line, the live view, `tbench status` and the dashboard all read this state.

`LiveState.apply` costs the same for the first event and for the hundred-thousandth; `terminalbench.live.model` adds
up, `terminalbench.live.forecast` says how long it still takes.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from terminalbench.decode import convert
from terminalbench.experiments.plan import Plan
from terminalbench.live.limits import GateLimits
from terminalbench.live.model import LiveJob, LiveProfile, LiveTrial, Tally, TrialKey, WaitingTrial, seconds
from terminalbench.live.notices import Alerts, Notices, notice_of
from terminalbench.records.event import Event, EventKind, Progress
from terminalbench.records.trial import Outcome

KEPT_FINISHED = 100
_JUMP_SEC = 2.0


@dataclass
class LiveState:
    """Everything that is known of one batch. Call `replan` when plan.json is new, `apply` with each event.

    `trials` are all that were seen, `finished` the last that ended. `at_once` are the trials at once that were ordered
    for a profile; None: for every one. `limits` is what `Feed` read of the gate.
    """

    tally: Tally = field(default_factory=Tally)
    trials: dict[TrialKey, LiveTrial] = field(default_factory=dict)
    jobs: dict[str, LiveJob] = field(default_factory=dict)
    finished: deque[LiveTrial] = field(default_factory=lambda: deque(maxlen=KEPT_FINISHED))
    notices: Notices = field(default_factory=Notices)
    alerts: Alerts = field(default_factory=Alerts)
    limits: GateLimits = field(default_factory=GateLimits)
    at_once: dict[str | None, int] = field(default_factory=dict)
    began: float | None = None
    last: float | None = None
    events: int = 0
    bad_lines: int = 0
    lost_lines: int = 0
    _places: dict[tuple[str, str, str], list[LiveTrial]] = field(default_factory=dict)
    _boots: dict[str, str] = field(default_factory=dict)
    _set_to: dict[str, float] = field(default_factory=dict)

    @property
    def plan(self) -> Plan | None:
        """The plan, if there is one."""
        return self.tally.plan

    @property
    def profiles(self) -> dict[str, LiveProfile]:
        """The profiles by key, in the order of the plan."""
        return self.tally.profiles

    @property
    def total(self) -> LiveProfile:
        """All profiles as one."""
        return LiveProfile.total(self.profiles.values())

    def replan(self, plan: Plan | None) -> None:
        """Take a plan in, or a changed one: what was seen so far is counted anew."""
        peaks = {key: profile.peak for key, profile in self.profiles.items()}
        self.tally = Tally(plan)
        for trial in self.trials.values():
            trial.counted = False
            profile = self.tally.profile(trial.profile)
            profile.retries += trial.retries
            profile.step_retries += trial.step_retries
            for usage in (*trial.tries.values(), *([None] if trial.lost else [])):
                profile.charge(usage)
            if trial.outcome is not None:
                profile.ended += 1
                self.tally.count(trial)
        for job in self.jobs.values():
            self.tally.profile(job.profile).running += len(job.running)
        for profile in self.profiles.values():
            profile.peak = max(profile.running, peaks.get(profile.key, 0))
        for task in list(self.tally.by_task):
            self.tally.look_ahead(task)

    def apply(self, event: Event) -> None:
        """Take one event in. What is unknown or out of place is shown or passed over, never an error."""
        self.events += 1
        time = seconds(event.time)
        if time is not None:
            self._follow_clock(event, time)
            self.last = time if self.last is None else max(self.last, time)
            self.began = time if self.began is None else self.began
        lost = event.detail.get("lost")
        if isinstance(lost, int):
            self.lost_lines += lost
        self.alerts.add(event)
        handle = _HANDLERS.get(event.kind)
        if handle is not None:
            handle(self, event, time)
        if event.kind not in _NO_NOTICE:
            self.notices.add(notice_of(event, time))

    def _follow_clock(self, event: Event, time: float) -> None:
        """Move the starts of what is going on when the time of day was set: nothing got older by it."""
        boot = event.detail.get("boot")
        if event.kind == EventKind.JOB_STARTED and isinstance(boot, str):
            self._boots[event.job] = boot
        machine = self._boots.get(event.job)
        if not machine or event.clock is None:
            return
        moved = time - event.clock - self._set_to.get(machine, time - event.clock)
        self._set_to[machine] = time - event.clock
        if abs(moved) > _JUMP_SEC:
            self._move(moved)

    def _move(self, moved: float) -> None:
        self.began = None if self.began is None else self.began + moved
        self.last = None if self.last is None else self.last + moved
        for job in self.jobs.values():
            for trial in job.running.values():
                trial.started = None if trial.started is None else trial.started + moved
                trial.last = None if trial.last is None else trial.last + moved
            job.waiting = {name: waiting.moved(moved) for name, waiting in job.waiting.items()}

    def close(self) -> None:
        """Take what had not ended as cut off: nothing of the batch runs any more."""
        for job in self.jobs.values():
            self._close(job)

    @property
    def running(self) -> list[LiveTrial]:
        """The running trials, the one that started first first."""
        return sorted((trial for job in self._live for trial in job.running.values()), key=lambda trial: trial.begin)

    @property
    def waiting(self) -> list[WaitingTrial]:
        """The trials that Harbor would start and that something keeps waiting."""
        return [waiting for job in self._live for waiting in job.waiting.values()]

    @property
    def held(self) -> list[tuple[str, str]]:
        """The profile and reason of each trial that is kept from starting."""
        return [(job.profile, reason) for job in self._live for reason in job.held.values()]

    @property
    def _live(self) -> list[LiveJob]:
        return [job for job in self.jobs.values() if not job.over]

    @property
    def shut(self) -> set[str]:
        """The profiles in which nothing starts any more: trials are held, or all their jobs have ended."""
        seen, on = {job.profile for job in self.jobs.values()}, {job.profile for job in self._live}
        return {profile for profile, _ in self.held} | (seen - on)

    @property
    def never(self) -> int:
        """Count planned trials that will not run: nothing starts in their profiles any more, and they are not held."""
        held = {profile for profile, _ in self.held}
        shut = [profile for profile in self.profiles.values() if profile.key in self.shut - held]
        return sum(max(0, (p.planned or 0) - p.done - p.running - p.outcomes[Outcome.CANCELLED]) for p in shut)

    @property
    def to_start(self) -> int | None:
        """Return how many planned trials are still to start; None when it is unknown what was planned."""
        total = self.total
        if total.planned is None:
            return None
        return max(0, total.planned - total.done - total.running - len(self.held) - self.never)

    @property
    def in_line(self) -> list[str]:
        """The profiles whose turn has not come: fewer run side by side than there are."""
        if self.plan is None or not self.plan.settings.profiles_parallel:
            return []
        on = {job.profile for job in self._live}
        return [p.key for p in self.profiles.values() if p.key not in on and p.done < (p.planned or 0)]

    def attempt(self, trial: LiveTrial) -> int:
        """Return which attempt at its task a trial is: as its agent was told.

        Older batches begin anew in each job: there it is the place among the trials that may count, as they started.
        """
        there = [one for one in self._places[trial.profile, trial.dataset, trial.task] if self.tally.may_count(one)]
        told = {one.attempt for one in there}
        if trial.attempt is not None and None not in told and len(told) == len(there):
            return trial.attempt
        return 1 + sum(one.begin < trial.begin for one in there)

    def _job(self, event: Event) -> LiveJob:
        job = self.jobs.get(event.job)
        if job is None:
            job = self.jobs[event.job] = LiveJob(event.job, event.profile or "")
        return job

    def _trial(self, event: Event) -> LiveTrial:
        key = (event.job, event.trial or "")
        trial = self.trials.get(key)
        if trial is None:
            place = (event.profile or "", event.dataset or "", event.task or "")
            trial = LiveTrial(*key, place[0], place[2], place[1], last=seconds(event.time), attempt=event.attempt)
            self.trials[key] = trial
            self._places.setdefault(place, []).append(trial)
        return trial

    def _job_started(self, event: Event, _time: float | None) -> None:
        this = self._job(event)
        this.over = False
        this.waiting.clear()
        for job in self.jobs.values():
            if job.profile == this.profile and job is not this:
                self._close(job)

    def _job_over(self, event: Event, _time: float | None) -> None:
        self._close(self._job(event))

    def _trial_waiting(self, event: Event, _time: float | None) -> None:
        cause, name = str(event.detail.get("cause") or ""), event.trial or ""
        until = event.detail.get("until")
        self._job(event).waiting[name] = WaitingTrial(event.profile or "", name, cause, event.error or cause, until)

    def _trial_started(self, event: Event, time: float | None) -> None:
        trial = self._begin(event)
        trial.started, trial.last, trial.phase, trial.at = time, time, "starting", None

    def _trial_phase(self, event: Event, time: float | None) -> None:
        trial = self._begin(event)
        step = event.detail.get("step")
        trial.phase = f"{event.phase or '?'} {step}" if step else event.phase or "?"
        at = _progress(event.detail.get("at"))
        if at is not None:
            # A trial that is tried again counts anew.
            gained = at.retries - trial.told_retries if at.retries >= trial.told_retries else at.retries
            trial.told_retries = at.retries
            trial.step_retries += gained
            self.tally.profile(trial.profile).step_retries += gained
        trial.at = at
        trial.last = time

    def _trial_cancelled(self, event: Event, time: float | None) -> None:
        trial = self._begin(event)
        trial.phase, trial.last, trial.at = "cancelling", time, None

    def _begin(self, event: Event) -> LiveTrial:
        """The trial of an event that says it runs."""
        trial, job = self._trial(event), self._job(event)
        if trial.outcome is not None and event.kind != EventKind.TRIAL_STARTED:
            return trial  # a line that came after the trial's end
        self._find(trial)
        job.over = False
        job.waiting.pop(trial.name, None)
        job.held.pop(trial.name, None)
        profile = self.tally.profile(trial.profile)
        if trial.name not in job.running:
            job.running[trial.name] = trial
            profile.running += 1
            profile.peak = max(profile.peak, profile.running)
        return trial

    def _leave(self, event: Event) -> LiveJob:
        """The job of a trial that neither runs nor waits any more."""
        job, name = self._job(event), event.trial or ""
        job.waiting.pop(name, None)
        trial = job.running.pop(name, None)
        if trial is not None:
            self.tally.profile(trial.profile).running -= 1
        return job

    def _trial_held(self, event: Event, _time: float | None) -> None:
        self._leave(event).held[event.trial or ""] = event.error or "no reason given"

    def _trial_ended(self, event: Event, time: float | None) -> None:
        trial = self._trial(event)
        profile = self.tally.profile(trial.profile)
        self._find(trial)
        self._leave(event)
        number = event.detail.get("try")
        number = number if isinstance(number, int) else 1
        if number in trial.tries:  # the same line twice
            profile.charge(trial.tries[number], -1)
        trial.tries[number] = event.usage
        profile.charge(event.usage)
        if event.detail.get("retried"):
            trial.retries += 1
            profile.retries += 1
            return
        self.tally.uncount(trial)
        profile.ended += trial.outcome is None
        trial.outcome = event.outcome or Outcome.ERRORED.value
        kind = event.detail.get("error_class")
        trial.error, trial.error_class = event.error, str(kind) if kind is not None else None
        trial.ended = trial.last = time
        trial.duration = _between(trial.started, time)
        self.tally.count(trial)
        self.finished.append(trial)
        self.tally.look_ahead((trial.dataset, trial.task))

    def _close(self, job: LiveJob) -> None:
        job.over = True
        job.held.clear()
        job.waiting.clear()
        for trial in job.running.values():
            profile = self.tally.profile(trial.profile)
            profile.running -= 1
            profile.charge(None)
            trial.lost = True
        job.running.clear()

    def _find(self, trial: LiveTrial) -> None:
        """A trial that was thought to be cut off gives a sign."""
        if trial.lost:
            trial.lost = False
            self.tally.profile(trial.profile).charge(None, -1)

    def _control(self, event: Event, _time: float | None) -> None:
        value = event.detail.get("value")
        if event.detail.get("action") == "set" and isinstance(value, int):
            self.at_once = {**(self.at_once if event.profile is not None else {}), event.profile: value}
        if event.detail.get("done") and event.job in self.jobs:
            self.jobs[event.job].waiting.pop(event.trial or "", None)

    def _note(self, event: Event, time: float | None) -> None:
        if event.job_died:
            self._close(self._job(event))
        resumed = event.resumed
        if resumed is None:
            return
        self.close()
        self.at_once = {}
        # What is resumed gets new jobs, perhaps only when its turn comes.
        self.jobs = {name: job for name, job in self.jobs.items() if not resumed.get(job.profile)}
        self.began = time if time is not None else self.began
        for profile in self.profiles.values():
            profile.peak = 0


_HANDLERS: dict[str, Any] = {
    EventKind.JOB_STARTED: LiveState._job_started,
    EventKind.JOB_ENDED: LiveState._job_over,
    EventKind.JOB_DIED: LiveState._job_over,
    EventKind.TRIAL_WAITING: LiveState._trial_waiting,
    EventKind.TRIAL_STARTED: LiveState._trial_started,
    EventKind.TRIAL_PHASE: LiveState._trial_phase,
    EventKind.TRIAL_CANCELLED: LiveState._trial_cancelled,
    EventKind.TRIAL_HELD: LiveState._trial_held,
    EventKind.TRIAL_ENDED: LiveState._trial_ended,
    EventKind.CONTROL: LiveState._control,
    EventKind.NOTE: LiveState._note,
    EventKind.RESUMED: LiveState._note,
}
_NO_NOTICE = {*EventKind} - {EventKind.CONTROL, EventKind.NOTE, EventKind.JOB_DIED, EventKind.RESUMED}


def replay(plan: Plan | None, events: Iterable[Event]) -> LiveState:
    """The state after events."""
    state = LiveState()
    state.replan(plan)
    for event in events:
        state.apply(event)
    return state


def _progress(told: object) -> Progress | None:
    """Return where an agent says it is; None when it says nothing, or nothing that can be read."""
    try:
        return convert(told, Progress) if told is not None else None
    except msgspec.ValidationError:
        return None


def _between(start: float | None, end: float | None) -> float | None:
    """Seconds from start to end; None when one is unknown, or the clock was set back."""
    return end - start if start is not None and end is not None and end >= start else None
