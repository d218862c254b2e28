"""Searches of a training night without a trial: what a profile passes is a function."""

from collections.abc import Callable, Mapping
from typing import Any

from terminalbench.analytics.model import Row
from terminalbench.experiments.experiment import Task
from terminalbench.records.trial import Outcome, TaskRef
from terminalbench.trainer.batches import AttemptPlan
from terminalbench.trainer.evolvers.search import Search
from terminalbench.trainer.lineage import ChampionReason, LineageStore
from terminalbench.trainer.plan import TrainingPlan

type Passes = Callable[[str, Task, int], bool]
"""Whether a profile (its prompt) passes an attempt at a task."""


class Batches:
    """Batches that are only counted; one that was run is not run again."""

    def __init__(self, plan: TrainingPlan, passes: Passes, batch: str | None = None) -> None:
        self.plan, self.passes, self.batch = plan, passes, batch
        self.ran: dict[str, list[Row]] = {}
        self.paid = 0

    def __call__(self, part: str, profiles: Mapping[str, Mapping[str, Any]], measure: AttemptPlan[Task]) -> list[Row]:
        """The rows of a batch."""
        if part not in self.ran:
            self.ran[part] = [
                self._row(part, name, self._prompt(table), task, attempt)
                for name, table in profiles.items()
                for task in measure.tasks
                for attempt in range(1, measure.attempts + 1)
            ]
            self.paid += len(self.ran[part])
        return self.ran[part]

    def _prompt(self, table: Mapping[str, Any]) -> str:
        return (self.plan.root / table["prompt"]).read_text() if "prompt" in table else ""

    def _row(self, part: str, name: str, prompt: str, task: Task, attempt: int) -> Row:
        outcome = Outcome.PASSED if self.passes(prompt, task, attempt) else Outcome.FAILED
        return Row(
            task=TaskRef(task.id, task.dataset, task.family),
            profile=name,
            profile_id=name,
            attempt=attempt,
            outcome=outcome,
            batch=self.batch or f"mine/{part}",
            trial=f"mine/{part}/{name}/{task.id}-{attempt}",
            task_digest=task.id,
        )


def search_of(plan: TrainingPlan, batches: Batches, *, night: int = 1, trials: int = 40) -> Search:
    """The search of a night of a plan whose first champion is crowned."""
    store = LineageStore(plan.root)
    if store.lineage(plan.lineage).champion is None:
        made = store.add(plan.lineage, plan.start, reason="start", source="test")
        store.crown(plan.lineage, made.id, ChampionReason.STARTED, reason="start")
    return Search(
        plan=plan,
        store=store,
        before=(),
        night=night,
        champion=plan.start.profile.id,
        known=frozenset(),
        trials=trials,
        run=batches,
    )
