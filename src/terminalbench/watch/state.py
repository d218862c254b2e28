"""The state of a batch from its events, one at a time: no clock, no files, the same result whichever way they mix.

`LiveState.apply` costs the same for the first event and for the hundred-thousandth. A trial counts for a cell by
the rule of `terminalbench.index.queries.assign_cells`: measured ones first, then errors, then cancelled ones; what is
over, and what was run again on request, was superseded: its cost counts, its result does not.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from terminalbench.experiments.agents import agent_info
from terminalbench.experiments.plan import Plan
from terminalbench.records import Event, Outcome, Usage
from terminalbench.watch.model import (
    MEASURED,
    OVER,
    Forecast,
    LiveCell,
    LiveJob,
    LiveProfile,
    LiveTrial,
    Records,
    TrialKey,
)
from terminalbench.watch.notices import Notices, notice_of


@dataclass
class LiveState:
    """Everything the view shows, of one batch. Call `replan` when plan.json is new, `apply` with each event."""

    plan: Plan | None = None
    profiles: dict[str, LiveProfile] = field(default_factory=dict)
    records: Records = field(default_factory=Records)
    notices: Notices = field(default_factory=Notices)
    began: float | None = None
    last: float | None = None
    events: int = 0
    bad_lines: int = 0
    lost_lines: int = 0
    _run_again: frozenset[str] = frozenset()

    def replan(self, plan: Plan | None) -> None:
        """Take a plan in, or a changed one: what was seen so far is counted anew."""
        self.plan = plan
        peaks = {key: profile.peak for key, profile in self.profiles.items()}
        self.profiles = {}
        self.records.cells.clear()
        self.records.by_task.clear()
        if plan is not None:
            self._run_again = frozenset(plan.superseded)
            self._plan_cells(plan)
        for trial in self.records.trials.values():
            trial.counted = False
            profile = self._profile(trial.profile)
            profile.retries += trial.retries
            profile.cost_unknown += trial.lost
            for usage in trial.tries.values():
                _charge(profile, usage, 1)
            if trial.outcome is not None:
                profile.ended += 1
                self._count_end(trial)
        for job in self.records.jobs.values():
            self._profile(job.profile).running += len(job.running)
        for profile in self.profiles.values():
            profile.peak = max(profile.running, peaks.get(profile.key, 0))
        for task in list(self.records.by_task):
            self._forecast(task)

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
        handle = _HANDLERS.get(event.kind)
        if handle is not None:
            handle(self, event, time)
        elif event.kind != "heartbeat":
            self.notices.add(notice_of(event, time))

    def close(self) -> None:
        """Nothing of the batch runs any more: what had not ended was cut off."""
        for job in self.records.jobs.values():
            self._close(job)

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

    def trial(self, key: TrialKey) -> LiveTrial | None:
        """The trial of a job and name."""
        return self.records.trials.get(key)

    def _plan_cells(self, plan: Plan) -> None:
        free = {
            p.key: (i := agent_info(str(p.content.get("agent")))) is not None and not i.model for p in plan.profiles
        }
        left_out = {(e.profile, e.task) for e in plan.excluded}
        for job in plan.jobs:
            profile = self.profiles.setdefault(job.profile, LiveProfile(job.profile, free.get(job.profile, False)))
            for task in job.tasks:
                attempts = job.attempts_of(task)
                cell = self._cell(job.profile, task.label, task.ref.id)
                cell.slots = (cell.slots or 0) + attempts
                names = ((job.profile, task.ref), (job.profile, None), (None, task.ref), (None, None))
                cell.excluded = any(name in left_out for name in names)
                if cell.excluded:
                    profile.left_out += attempts
                else:
                    profile.planned = (profile.planned or 0) + attempts

    def _profile(self, key: str) -> LiveProfile:
        if key not in self.profiles:
            self.profiles[key] = LiveProfile(key, planned=None)
        return self.profiles[key]

    def _cell(self, profile: str, dataset: str, task: str) -> LiveCell:
        key = (profile, dataset, task)
        cell = self.records.cells.get(key)
        if cell is None:
            # A planned cell gets its slots right after; one the plan does not know has none when there is a plan.
            cell = LiveCell(profile, (dataset, task), 0 if self.plan is not None else None)
            self.records.cells[key] = cell
            self.records.by_task.setdefault(cell.task, []).append(cell)
        return cell

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
                *key,
                event.profile or "",
                event.task or "",
                event.dataset or "",
                event.attempt,
                last=seconds(event.time),
            )
            self.records.trials[key] = trial
        return trial

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
        profile = self._profile(trial.profile)
        if trial.name not in job.running:
            job.running[trial.name] = trial
            profile.running += 1
            profile.peak = max(profile.peak, profile.running)
        return trial

    def _trial_held(self, event: Event, _time: float | None) -> None:
        self._job(event).held[event.trial or ""] = event.error or "no reason given"

    def _trial_ended(self, event: Event, time: float | None) -> None:
        trial, job = self._trial(event), self._job(event)
        profile = self._profile(trial.profile)
        self._find(trial)
        if job.running.pop(trial.name, None) is not None:
            profile.running -= 1
        number = event.detail.get("try", 1)
        if number in trial.tries:  # the same line twice
            _charge(profile, trial.tries[number], -1)
        trial.tries[number] = event.usage
        _charge(profile, event.usage, 1)
        if event.detail.get("retried"):
            trial.retries += 1
            profile.retries += 1
            return
        self._uncount(trial)
        kind = event.detail.get("error_class")
        profile.ended += trial.outcome is None
        trial.outcome = event.outcome or Outcome.ERRORED.value
        trial.error, trial.error_class = event.error, str(kind) if kind is not None else None
        trial.ended = trial.last = time
        trial.duration = _between(trial.started, time)
        self._count_end(trial)
        self.records.finished.append(trial)
        self._forecast((trial.dataset, trial.task))

    def _close(self, job: LiveJob) -> None:
        job.over = True
        job.held.clear()
        for trial in job.running.values():
            profile = self._profile(trial.profile)
            profile.running -= 1
            profile.cost_unknown += 1
            trial.lost = True
        job.running.clear()

    def _find(self, trial: LiveTrial) -> None:
        """A trial that was thought to be cut off gives a sign."""
        if trial.lost:
            trial.lost = False
            self._profile(trial.profile).cost_unknown -= 1

    def _count_end(self, trial: LiveTrial) -> None:
        if f"{trial.job}/{trial.name}" in self._run_again:
            return
        cell = self._cell(trial.profile, trial.dataset, trial.task)
        cell.ended[trial.key] = trial
        if cell.slots is None or len(cell.ended) <= cell.slots:
            self._count(cell, trial)
            return
        chosen = sorted(cell.ended.values(), key=_rank)[: cell.slots]
        kept = {one.key for one in chosen}
        for one in cell.ended.values():
            if one.counted and one.key not in kept:
                self._uncount(one)
        for one in chosen:
            if not one.counted:
                self._count(cell, one)

    def _count(self, cell: LiveCell, trial: LiveTrial) -> None:
        self._tally(cell, trial, 1)
        trial.counted = True

    def _uncount(self, trial: LiveTrial) -> None:
        if trial.counted:
            self._tally(self._cell(trial.profile, trial.dataset, trial.task), trial, -1)
            trial.counted = False

    def _tally(self, cell: LiveCell, trial: LiveTrial, sign: int) -> None:
        profile, outcome = self._profile(trial.profile), trial.outcome or ""
        profile.outcomes[outcome] += sign
        if outcome in OVER and outcome not in MEASURED:
            profile.errors[trial.error_class or outcome] += sign
        cell.over += sign if outcome in OVER else 0
        if cell.excluded:
            profile.planned = (profile.planned or 0) + sign
            profile.left_out -= sign
        if trial.duration is not None and outcome in OVER:
            cell.seconds += sign * trial.duration
            cell.timed += sign
            (profile.add_duration if sign > 0 else profile.drop_duration)(trial.duration)

    def _forecast(self, task: tuple[str, str]) -> None:
        """Keep the time that is still to come in the cells of a task."""
        cells = self.records.by_task.get(task, [])
        timed = sum(cell.timed for cell in cells)
        mean = sum(cell.seconds for cell in cells) / timed if timed else None
        for cell in cells:
            if mean is None:
                new = Forecast(blind=cell.open)
            elif cell.timed:
                new = Forecast(own_sec=cell.open * cell.seconds / cell.timed, same_sec=cell.timed * mean)
            else:
                new = Forecast(task_sec=cell.open * mean)
            profile = self._profile(cell.profile)
            profile.forecast = profile.forecast.changed(cell.forecast, new)
            cell.forecast = new

    def _note(self, event: Event, time: float | None) -> None:
        if isinstance(event.detail.get("resumed"), dict):
            self.close()
            self.began = time if time is not None else self.began
            for profile in self.profiles.values():
                profile.peak = 0
        self.notices.add(notice_of(event, time))


_HANDLERS: dict[str, Any] = {
    "job_started": LiveState._job_started,
    "job_ended": LiveState._job_ended,
    "trial_started": LiveState._trial_started,
    "trial_phase": LiveState._trial_phase,
    "trial_cancelled": LiveState._trial_cancelled,
    "trial_held": LiveState._trial_held,
    "trial_ended": LiveState._trial_ended,
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


def total_tokens(usage: Usage | None) -> int | None:
    """Every token of a trial, cached ones too; None when none is known."""
    if usage is None:
        return None
    counts = (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens, usage.output_tokens)
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _charge(profile: LiveProfile, usage: Usage | None, sign: int) -> None:
    cost, tokens = usage.cost_usd if usage is not None else None, total_tokens(usage)
    if cost is not None:
        profile.cost_usd += sign * cost
        profile.cost_known += sign
    elif not profile.free:
        profile.cost_unknown += sign
    if tokens is not None:
        profile.tokens += sign * tokens
        profile.tokens_known += sign
    elif not profile.free:
        profile.tokens_unknown += sign


def _rank(trial: LiveTrial) -> tuple[int, float, TrialKey]:
    """Which trials of a cell count first: as `assign_cells` ranks them."""
    started = trial.started or 0.0
    if trial.outcome in MEASURED:
        return (0, started, trial.key)
    return (2 if trial.outcome == Outcome.CANCELLED else 1, -started, trial.key)
