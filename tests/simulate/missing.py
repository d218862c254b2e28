"""How often the whole of `compare` gives a verdict when trials are lost, at random or not: the rows are those it reads."""

from dataclasses import dataclass

import numpy as np

from simulate.worlds import World
from terminalbench.analytics.compare import compare
from terminalbench.analytics.model import Row
from terminalbench.analytics.settings import Settings
from terminalbench.records import Outcome, TaskRef


@dataclass(frozen=True)
class Loss:
    """The chance that a trial is lost, by profile and by what it would have been."""

    old_failed: float = 0.0
    old_passed: float = 0.0
    new_failed: float = 0.0
    new_passed: float = 0.0


LOSSES = {
    "nothing": Loss(),
    "3 % of both, at random": Loss(0.03, 0.03, 0.03, 0.03),
    "8 % of new, at random": Loss(new_failed=0.08, new_passed=0.08),
    "new hides 15 % of its fails": Loss(new_failed=0.15),
    "old loses 20 % of its passes": Loss(old_passed=0.2),
    "old loses 15 % of its passes, new hides 10 % of its fails": Loss(old_passed=0.15, new_failed=0.1),
}


def verdicts(
    world: World, size: tuple[int, int], loss: Loss, reps: int, seed: int = 8, asked: dict | None = None
) -> dict[str, float]:
    """The share of draws with each verdict, over `reps` draws of (tasks, attempts); `asked` are further settings."""
    settings = Settings(baseline="old", contrasts=(("new", "old"),), **(asked or {}))
    found = dict.fromkeys(("better", "worse", "equivalent", "inconclusive"), 0)
    tasks, attempts = size
    random = np.random.default_rng((seed, tasks, attempts))
    refs = [TaskRef(f"{task}", "d") for task in range(tasks)]
    chances = {"old": (loss.old_failed, loss.old_passed), "new": (loss.new_failed, loss.new_passed)}
    for _ in range(reps):
        rows = []
        for profile, rates in zip(("old", "new"), world.draw(random, (tasks,)), strict=True):
            passed = random.random((attempts, tasks)) < rates
            lost = random.random((attempts, tasks)) < np.where(passed, *reversed(chances[profile]))
            outcomes = np.where(lost, 2, passed).T.tolist()
            rows += [
                Row(task=ref, profile=profile, attempt=attempt, outcome=_OUTCOMES[mark], batch="s/0")
                for ref, marks in zip(refs, outcomes, strict=True)
                for attempt, mark in enumerate(marks, 1)
            ]
        found[compare(rows, settings).contrasts[0].verdict] += 1
    return {verdict: count / reps for verdict, count in found.items()}


_OUTCOMES = (Outcome.FAILED, Outcome.PASSED, Outcome.ERRORED)
