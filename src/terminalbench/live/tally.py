"""Sums of trials, by profile: which of them count, what they cost, how long the others will take.

A trial counts for a cell by `first_verdicts` and `counting_order` of `terminalbench.index.queries`; what is over, and
what was run again on request without a verdict, was superseded: its cost counts, its result does not. A trial is taken
in or out in the same time, however many there are.
"""

from dataclasses import dataclass, field

from terminalbench.experiments.plan import Plan
from terminalbench.index.queries import counting_order, first_verdicts, standing
from terminalbench.live.model import MEASURED, OVER, LiveCell, LiveProfile, LiveTrial, TaskKey, TimeAhead
from terminalbench.records.trial import Outcome


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
        free, excluded, oracles = plan.without_model(), plan.exclusions(), plan.oracles()
        for job in plan.jobs:
            profile = self.profiles.setdefault(job.profile, LiveProfile(job.profile, job.profile in free))
            profile.oracle = job.profile in oracles
            for task in job.tasks:
                attempts = job.attempts_of(task)
                cell = self._cell(job.profile, task.label, task.ref.id)
                cell.slots = (cell.slots or 0) + attempts
                cell.excluded = excluded(job.profile, task.ref) is not None
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
        repeated = trial.attempt is not None and sum(one.attempt == trial.attempt for one in cell.ended.values()) > 1
        if not repeated and (cell.slots is None or len(cell.ended) <= cell.slots):
            self._add(cell, trial, 1)
            return
        started = sorted(cell.ended.values(), key=lambda one: one.begin)
        place, has_start = (lambda one: standing(one.outcome)), (lambda one: one.started is not None)
        first = first_verdicts(started, lambda one: one.attempt, place, has_start)
        ranked = counting_order(first.may_count, place, has_start)
        for one in [*first.again, *ranked[cell.slots :]]:
            self.uncount(one)
        for one in ranked[: cell.slots]:
            if not one.counted:
                self._add(cell, one, 1)

    def may_count(self, trial: LiveTrial) -> bool:
        """True when a trial stands for a planned one: not cut off, cancelled or run again."""
        return not (trial.lost or trial.outcome == Outcome.CANCELLED or self._is_run_again(trial))

    def _is_run_again(self, trial: LiveTrial) -> bool:
        """True when another counts in its place: a try with a verdict counts, though it was run again on request."""
        return trial.outcome not in MEASURED and f"{trial.job}/{trial.name}" in self._run_again

    def uncount(self, trial: LiveTrial) -> None:
        """Take a trial out, because it turned out otherwise or does not count any more."""
        if trial.counted:
            self._add(self._cell(trial.profile, trial.dataset, trial.task), trial, -1)

    def _add(self, cell: LiveCell, trial: LiveTrial, sign: int) -> None:
        profile, outcome = self.profile(trial.profile), trial.outcome or ""
        trial.counted = sign > 0
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
            profile.time(trial.duration, sign)

    def look_ahead(self, task: TaskKey) -> None:
        """Keep the time that is still to come in the cells of a task."""
        for cell in self.by_task.get(task, []):
            others = self.others_sec(cell.profile, cell.task)
            if cell.mean_sec is not None:
                same = (cell.timed * others, cell.seconds) if others is not None else (0.0, 0.0)
                new = TimeAhead(cell.open * cell.mean_sec, same_sec=same[0], paced_sec=same[1])
            else:
                new = TimeAhead(blind=cell.open) if others is None else TimeAhead(task_sec=cell.open * others)
            profile = self.profile(cell.profile)
            profile.ahead = profile.ahead.changed(cell.ahead, new)
            cell.ahead = new

    def own_sec(self, profile: str, task: TaskKey) -> float | None:
        """Return what a task took a profile so far, on average."""
        cell = self._cells.get((profile, *task))
        return cell.mean_sec if cell is not None else None

    def others_sec(self, profile: str, task: TaskKey) -> float | None:
        """Return what a task took the other profiles, on average.

        An oracle says nothing about how long a task takes a model, nor a model about an oracle.
        """
        free = self.profile(profile).free
        cells = [c for c in self.by_task.get(task, []) if c.profile != profile and self.profile(c.profile).free == free]
        timed = sum(cell.timed for cell in cells)
        return sum(cell.seconds for cell in cells) / timed if timed else None
