"""How often the whole of `compare` gives a verdict when trials are lost, at random or not: the rows are those it reads."""

from dataclasses import dataclass

import numpy as np

from simulate.worlds import World
from terminalbench.analytics.compare import compare
from terminalbench.analytics.model import Row
from terminalbench.analytics.settings import ComparisonSettings
from terminalbench.records.trial import Outcome, TaskRef


@dataclass(frozen=True)
class Loss:
    """The chance that a trial is lost, by profile and by what it would have been; or drawn again after a crash."""

    old_failed: float = 0.0
    old_passed: float = 0.0
    new_failed: float = 0.0
    new_passed: float = 0.0
    drawn_again: bool = False


LOSSES = {
    "nothing": Loss(),
    "3 % of both, at random": Loss(0.03, 0.03, 0.03, 0.03),
    "8 % of new, at random": Loss(new_failed=0.08, new_passed=0.08),
    "new hides 15 % of its fails": Loss(new_failed=0.15),
    "old loses 20 % of its passes": Loss(old_passed=0.2),
    "old loses 15 % of its passes, new hides 10 % of its fails": Loss(old_passed=0.15, new_failed=0.1),
    "2 % of both crash at random, and are drawn again": Loss(0.02, 0.02, 0.02, 0.02, True),
    "new crashes in 5 % of its fails, and is drawn again": Loss(new_failed=0.05, drawn_again=True),
    "new crashes in 20 % of its fails, and is drawn again": Loss(new_failed=0.2, drawn_again=True),
}


def verdicts(
    world: World, size: tuple[int, int], loss: Loss, reps: int, seed: int = 8, asked: dict | None = None
) -> dict[str, float]:
    """The share of draws with each verdict, over `reps` draws of (tasks, attempts); `asked` are further settings."""
    settings = ComparisonSettings(baseline="old", contrasts=(("new", "old"),), **(asked or {}))
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
            again = random.random((attempts, tasks)) < rates if loss.drawn_again else 2
            marks = np.stack([np.where(lost, again, passed), lost & loss.drawn_again]).T.tolist()
            rows += [
                Row(
                    task=ref, profile=profile, attempt=attempt, outcome=_OUTCOMES[mark], batch="s/0",
                    broken=crashed, redrawn=crashed, crashed=crashed,
                )
                for ref, found_here in zip(refs, marks, strict=True)
                for attempt, (mark, crashed) in enumerate(found_here, 1)
            ]  # fmt: skip
        found[compare(rows, settings).contrasts[0].verdict] += 1
    return {verdict: count / reps for verdict, count in found.items()}


_OUTCOMES = (Outcome.FAILED, Outcome.PASSED, Outcome.ERRORED)
