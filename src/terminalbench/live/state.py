"""The state of a batch from its events, one at a time: no clock, no files, the same result whichever way they mix.

`LiveState.apply` costs the same for the first event and for the hundred-thousandth; `terminalbench.live.tally` adds
up.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from terminalbench.experiments.plan import Plan
from terminalbench.live.alerts import AlertBoard
from terminalbench.live.model import LiveJob, LiveProfile, LiveTrial, Records, TrialKey
from terminalbench.live.notices import Notices, notice_of
from terminalbench.live.tally import Tally, charge
from terminalbench.live.waiting import WaitingRoom
from terminalbench.records import Event, Outcome


@dataclass
class LiveState:
    """Everything the view shows, of one batch. Call `replan` when plan.json is new, `apply` with each event.

    `at_once` are the trials at once that somebody ordered for a profile; None: for every one.
    """

    tally: Tally = field(default_factory=Tally)
    records: Records = field(default_factory=Records)
    notices: Notices = field(default_factory=Notices)
    alerts: AlertBoard = field(default_factory=AlertBoard)
    waiting: WaitingRoom = field(default_factory=WaitingRoom)
    at_once: dict[str | None, int] = field(default_factory=dict)
    began: float | None = None
    last: float | None = None
    events: int = 0
    bad_lines: int = 0
    lost_lines: int = 0

    @property
    def plan(self) -> Plan | None:
        """The plan, if there is one."""
        return self.tally.plan

    @property
    def profiles(self) -> dict[str, LiveProfile]:
        """The profiles by key, in the order of the plan."""
        return self.tally.profiles

    def replan(self, plan: Plan | None) -> None:
        """Take a plan in, or a changed one: what was seen so far is counted anew."""
        peaks = {key: profile.peak for key, profile in self.profiles.items()}
        self.tally = Tally(plan)
        for trial in self.records.trials.values():
            trial.counted = False
            profile = self.tally.profile(trial.profile)
            profile.retries += trial.retries
            for usage in (*trial.tries.values(), *([None] if trial.lost else [])):
                charge(profile, usage)
            if trial.outcome is not None:
                profile.ended += 1
                self.tally.count(trial)
        for job in self.records.jobs.values():
            self.tally.profile(job.profile).running += len(job.running)
        for profile in self.profiles.values():
            profile.peak = max(profile.running, peaks.get(profile.key, 0))
        for task in list(self.tally.by_task):
            self.tally.forecast(task)

    def apply(self, event: Event) -> None:
        """Take one event in. What is unknown or out of place is shown or passed over, never an error."""
        self.events += 1
        time = seconds(event.time)
        if time is not None:
            self.last = time if self.last is None else max(self.last, time)
            self.began = time if self.began is None else self.began
        lost = event.detail.get("lost")
        if isinstance(lost, int):
            self.lost_lines += lost
        self.alerts.add(event)
        self.waiting.add(event)
        handle = _HANDLERS.get(event.kind)
        if handle is not None:
            handle(self, event, time)
        elif event.kind not in _SHOWN_ELSEWHERE:
            self.notices.add(notice_of(event, time))

    def close(self) -> None:
        """Nothing of the batch runs any more: what had not ended was cut off."""
        for job in self.records.jobs.values():
            self._close(job)
        self.waiting = WaitingRoom()

    @property
    def running(self) -> list[LiveTrial]:
        """The running trials, the one that started first first."""
        found = [trial for job in self.records.jobs.values() if not job.over for trial in job.running.values()]
        return sorted(found, key=lambda trial: (trial.started or 0.0, trial.key))

    @property
    def held(self) -> list[tuple[str, str]]:
        """The profile and reason of each trial that is kept from starting."""
        jobs = [job for job in self.records.jobs.values() if not job.over]
        return [(job.profile, reason) for job in jobs for reason in job.held.values()]

    @property
    def shut(self) -> set[str]:
        """The profiles in which nothing starts any more: trials are held, or all their jobs have ended."""
        over: dict[str, bool] = {}
        for job in self.records.jobs.values():
            over[job.profile] = over.get(job.profile, True) and job.over
        return {profile for profile, _ in self.held} | {profile for profile, ended in over.items() if ended}

    @property
    def never(self) -> int:
        """How many planned trials will not run: nothing starts in their profiles any more, and they are not held."""
        held = [profile for profile, _ in self.held]
        shut = [profile for profile in self.profiles.values() if profile.key in self.shut - set(held)]
        return sum(max(0, (p.planned or 0) - p.done - p.running - p.outcomes["cancelled"]) for p in shut)

    @property
    def in_line(self) -> list[str]:
        """The profiles whose turn has not come: fewer run side by side than there are."""
        if self.plan is None or not self.plan.settings.profiles_parallel:
            return []
        on = {job.profile for job in self.records.jobs.values() if not job.over}
        return [p.key for p in self.profiles.values() if p.key not in on and p.done < (p.planned or 0)]

    def trial(self, key: TrialKey) -> LiveTrial | None:
        """The trial of a job and name."""
        return self.records.trials.get(key)

    def _job(self, event: Event) -> LiveJob:
        job = self.records.jobs.get(event.job)
        if job is None:
            job = self.records.jobs[event.job] = LiveJob(event.job, event.profile or "")
        return job

    def _trial(self, event: Event) -> LiveTrial:
        key = (event.job, event.trial or "")
        trial = self.records.trials.get(key)
        if trial is None:
            trial = LiveTrial(
                *key, event.profile or "", event.task or "", event.dataset or "", last=seconds(event.time)
            )
            self.records.trials[key] = trial
            self.records.places.setdefault((trial.profile, trial.dataset, trial.task), []).append(trial)
        return trial

    def attempt(self, trial: LiveTrial) -> int:
        """Which attempt at its task a trial is, over all jobs: the trials that may count, in the order they started."""
        there = self.records.places[trial.profile, trial.dataset, trial.task]
        begin = (trial.started or 0.0, trial.key)
        return 1 + sum(self.tally.may_count(one) and (one.started or 0.0, one.key) < begin for one in there)

    def _job_started(self, event: Event, _time: float | None) -> None:
        this = self._job(event)
        this.over = False
        for job in self.records.jobs.values():
            if job.profile == this.profile and job is not this:
                self._close(job)

    def _job_ended(self, event: Event, _time: float | None) -> None:
        self._close(self._job(event))

    def _trial_started(self, event: Event, time: float | None) -> None:
        trial = self._begin(event)
        trial.started, trial.last, trial.phase = time, time, "starting"

    def _trial_phase(self, event: Event, time: float | None) -> None:
        trial = self._begin(event)
        step = event.detail.get("step")
        trial.phase = f"{event.phase or '?'} {step}" if step else event.phase or "?"
        trial.last = time

    def _trial_cancelled(self, event: Event, time: float | None) -> None:
        trial = self._begin(event)
        trial.phase, trial.last = "cancelling", time

    def _begin(self, event: Event) -> LiveTrial:
        """The trial of an event that says it runs."""
        trial, job = self._trial(event), self._job(event)
        if trial.outcome is not None and event.kind != "trial_started":
            return trial  # a line that came after the trial's end
        self._find(trial)
        job.over = False
        job.held.pop(trial.name, None)
        profile = self.tally.profile(trial.profile)
        if trial.name not in job.running:
            job.running[trial.name] = trial
            profile.running += 1
            profile.peak = max(profile.peak, profile.running)
        return trial

    def _trial_held(self, event: Event, _time: float | None) -> None:
        self._job(event).held[event.trial or ""] = event.error or "no reason given"

    def _trial_ended(self, event: Event, time: float | None) -> None:
        trial, job = self._trial(event), self._job(event)
        profile = self.tally.profile(trial.profile)
        self._find(trial)
        if job.running.pop(trial.name, None) is not None:
            profile.running -= 1
        number = event.detail.get("try")
        number = number if isinstance(number, int) else 1
        if number in trial.tries:  # the same line twice
            charge(profile, trial.tries[number], -1)
        trial.tries[number] = event.usage
        charge(profile, event.usage)
        kind = event.detail.get("error_class")
        if event.detail.get("retried"):
            trial.retries += 1
            profile.retries += 1
            return
        self.tally.uncount(trial)
        profile.ended += trial.outcome is None
        trial.outcome = event.outcome or Outcome.ERRORED.value
        trial.error, trial.error_class = event.error, str(kind) if kind is not None else None
        trial.ended = trial.last = time
        trial.duration = _between(trial.started, time)
        self.tally.count(trial)
        self.records.finished.append(trial)
        self.tally.forecast((trial.dataset, trial.task))

    def _close(self, job: LiveJob) -> None:
        job.over = True
        job.held.clear()
        for trial in job.running.values():
            profile = self.tally.profile(trial.profile)
            profile.running -= 1
            charge(profile, None)
            trial.lost = True
        job.running.clear()

    def _find(self, trial: LiveTrial) -> None:
        """A trial that was thought to be cut off gives a sign."""
        if trial.lost:
            trial.lost = False
            charge(self.tally.profile(trial.profile), None, -1)

    def _control(self, event: Event, time: float | None) -> None:
        value = event.detail.get("value")
        if event.detail.get("action") == "set" and isinstance(value, int):
            self.at_once = {**(self.at_once if event.profile is not None else {}), event.profile: value}
        self.notices.add(notice_of(event, time))

    def _note(self, event: Event, time: float | None) -> None:
        if event.names_a_death:
            self._close(self._job(event))
        resumed = event.detail.get("resumed")
        if isinstance(resumed, dict):
            self.close()
            self.at_once = {}
            jobs = self.records.jobs.items()  # what goes on gets new ones, perhaps only when its turn comes
            self.records.jobs = {name: job for name, job in jobs if not resumed.get(job.profile)}
            self.began = time if time is not None else self.began
            for profile in self.profiles.values():
                profile.peak = 0
        self.notices.add(notice_of(event, time))


_SHOWN_ELSEWHERE = ("heartbeat", "alert", "trial_waiting")
_HANDLERS: dict[str, Any] = {
    "job_started": LiveState._job_started,
    "job_ended": LiveState._job_ended,
    "trial_started": LiveState._trial_started,
    "trial_phase": LiveState._trial_phase,
    "trial_cancelled": LiveState._trial_cancelled,
    "trial_held": LiveState._trial_held,
    "trial_ended": LiveState._trial_ended,
    "control": LiveState._control,
    "note": LiveState._note,
}


def replay(plan: Plan | None, events: Iterable[Event]) -> LiveState:
    """The state after events."""
    state = LiveState()
    state.replan(plan)
    for event in events:
        state.apply(event)
    return state


def seconds(text: str | None) -> float | None:
    """A time of an event or a result in seconds since the epoch; None when it cannot be read."""
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _between(start: float | None, end: float | None) -> float | None:
    """Seconds from start to end; None when one is unknown, or the clock was set back."""
    return end - start if start is not None and end is not None and end >= start else None
