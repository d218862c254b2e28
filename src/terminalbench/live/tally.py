"""What trials add up to, by profile: which of them count, what they cost, how long the others will take.

A trial counts for a cell by the rule of `terminalbench.index.queries.assign_cells`: measured ones first, then errors,
then cancelled ones; what is over, and what was run again on request, was superseded: its cost counts, its result does
not. A trial is taken in or out in the same time, however many there are.
"""

from dataclasses import dataclass, field

from terminalbench.experiments.plan import Plan
from terminalbench.index.queries import standing
from terminalbench.live.model import (
    MEASURED,
    OVER,
    Forecast,
    LiveCell,
    LiveProfile,
    LiveTrial,
    TaskKey,
    TrialKey,
)
from terminalbench.records import Outcome, Usage


@dataclass
class Tally:
    """The profiles and cells of one plan, or of none."""

    plan: Plan | None = None
    profiles: dict[str, LiveProfile] = field(default_factory=dict)
    by_task: dict[TaskKey, list[LiveCell]] = field(default_factory=dict)
    _cells: dict[tuple[str, str, str], LiveCell] = field(default_factory=dict)
    _run_again: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.plan is not None:
            self._run_again = frozenset(self.plan.superseded)
            self._plan_cells(self.plan)

    def _plan_cells(self, plan: Plan) -> None:
        free = plan.without_model()
        left_out = {(e.profile, e.task) for e in plan.excluded}
        for job in plan.jobs:
            profile = self.profiles.setdefault(job.profile, LiveProfile(job.profile, job.profile in free))
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

    def profile(self, key: str) -> LiveProfile:
        """The row of a profile; one the plan does not know gets one too."""
        if key not in self.profiles:
            self.profiles[key] = LiveProfile(key, planned=None)
        return self.profiles[key]

    def _cell(self, profile: str, dataset: str, task: str) -> LiveCell:
        key = (profile, dataset, task)
        cell = self._cells.get(key)
        if cell is None:
            # A planned cell gets its slots right after; one the plan does not know has none when there is a plan.
            cell = LiveCell(profile, (dataset, task), 0 if self.plan is not None else None)
            self._cells[key] = cell
            self.by_task.setdefault(cell.task, []).append(cell)
        return cell

    def count(self, trial: LiveTrial) -> None:
        """Take in a trial that has ended, in the place of another where only so many count."""
        if self._is_run_again(trial):
            return
        cell = self._cell(trial.profile, trial.dataset, trial.task)
        cell.ended[trial.key] = trial
        if cell.slots is None or len(cell.ended) <= cell.slots:
            self._add(cell, trial)
            return
        chosen = sorted(cell.ended.values(), key=_rank)[: cell.slots]
        kept = {one.key for one in chosen}
        for one in cell.ended.values():
            if one.counted and one.key not in kept:
                self.uncount(one)
        for one in chosen:
            if not one.counted:
                self._add(cell, one)

    def may_count(self, trial: LiveTrial) -> bool:
        """Whether a trial stands for a planned one: not cut off, cancelled or run again."""
        return not (trial.lost or trial.outcome == Outcome.CANCELLED or self._is_run_again(trial))

    def _is_run_again(self, trial: LiveTrial) -> bool:
        return f"{trial.job}/{trial.name}" in self._run_again

    def _add(self, cell: LiveCell, trial: LiveTrial) -> None:
        self._tally(cell, trial, 1)
        trial.counted = True

    def uncount(self, trial: LiveTrial) -> None:
        """Take a trial out, because it turned out otherwise or does not count any more."""
        if trial.counted:
            self._tally(self._cell(trial.profile, trial.dataset, trial.task), trial, -1)
            trial.counted = False

    def _tally(self, cell: LiveCell, trial: LiveTrial, sign: int) -> None:
        profile, outcome = self.profile(trial.profile), trial.outcome or ""
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

    def forecast(self, task: tuple[str, str]) -> None:
        """Keep the time that is still to come in the cells of a task."""
        for cell in self.by_task.get(task, []):
            mean = self._others_sec(cell.profile, cell.task)
            if cell.timed:
                own = cell.open * cell.seconds / cell.timed
                same = (cell.timed * mean, cell.seconds) if mean is not None else (0.0, 0.0)
                new = Forecast(own, same_sec=same[0], paced_sec=same[1])
            else:
                new = Forecast(blind=cell.open) if mean is None else Forecast(task_sec=cell.open * mean)
            profile = self.profile(cell.profile)
            profile.forecast = profile.forecast.changed(cell.forecast, new)
            cell.forecast = new

    def own_sec(self, trial: LiveTrial) -> float | None:
        """What its task took its profile so far, on average."""
        cell = self._cells.get((trial.profile, trial.dataset, trial.task))
        return cell.seconds / cell.timed if cell is not None and cell.timed else None

    def others_sec(self, trial: LiveTrial) -> float | None:
        """What its task took the other profiles, on average."""
        return self._others_sec(trial.profile, (trial.dataset, trial.task))

    def _others_sec(self, profile: str, task: TaskKey) -> float | None:
        """An oracle says nothing about how long a task takes a model, nor a model about an oracle."""
        free = self.profile(profile).free
        cells = [c for c in self.by_task.get(task, []) if c.profile != profile and self.profile(c.profile).free == free]
        timed = sum(cell.timed for cell in cells)
        return sum(cell.seconds for cell in cells) / timed if timed else None


def charge(profile: LiveProfile, usage: Usage | None, sign: int = 1) -> None:
    """Add (or with -1 take away) what a try cost."""
    cost, tokens = (usage.cost_usd, usage.total_tokens) if usage is not None else (None, None)
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
    place, started = standing(trial.outcome), trial.started or 0.0
    return (place, started if place == 0 else -started, trial.key)
