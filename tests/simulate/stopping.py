"""Runs that end early where a verdict is allowed at any time: what they save, and what that costs in power."""

import numpy as np

from simulate.worlds import World, truth_of
from terminalbench.analytics.power import chance_to_differ
from terminalbench.analytics.sign_flip import sequential_flips
from terminalbench.lab.run import HOPELESS

ALPHA = 0.05
LOOKS = 20


def stages(steps: np.ndarray) -> list[list[float]]:
    """The mean differences of tasks after each twentieth of the pairs: `steps` are attempts by tasks, in their order."""
    attempts, tasks = steps.shape
    found = []
    for look in range(1, LOOKS + 1):
        there = np.arange(attempts * tasks).reshape(attempts, tasks) < -(-attempts * tasks * look // LOOKS)
        found.append((np.where(there, steps, 0).sum(0) / np.maximum(there.sum(0), 1)).tolist())
    return found


def stopping(world: World, size: tuple[int, int], reps: int, seed: int = 22) -> dict[str, float]:
    """How many trials are spared of (tasks, attempts), how often a difference is told at all and without giving up, how
    often a pair is given up, and by how much those that were told are overstated."""
    tasks, attempts = size
    random = np.random.default_rng((seed, tasks, attempts))
    budgets = [ALPHA * (look / LOOKS) ** 2 for look in range(1, LOOKS + 1)]
    saved = told = whole = given_up = 0.0
    excess = []
    for _ in range(reps):
        old, new = world.draw(random, (tasks,))
        steps = (random.random((attempts, tasks)) < new).astype(int) - (random.random((attempts, tasks)) < old)
        found = stages(steps)
        never = LOOKS + 1
        decided = sequential_flips(found, budgets).look or never
        hopeless = next((look for look in range(1, LOOKS) if _chance(found[look - 1], look) < HOPELESS), never)
        whole += decided < never
        given_up += hopeless < decided
        saved += 1 - min(decided, hopeless, LOOKS) / LOOKS
        if decided < never and decided <= hopeless:
            told += 1
            begun = min(tasks, -(-attempts * tasks * decided // LOOKS))
            excess.append(sum(found[decided - 1]) / begun - float((new - old).mean()))
    return {
        "gap": truth_of(world),
        "saved": saved / reps,
        "told": told / reps,
        "told, never giving up": whole / reps,
        "given up": given_up / reps,
        "overstated": float(np.mean(excess)) if excess else float("nan"),
    }


def _chance(sums: list[float], look: int) -> float:
    """How likely the end shows a difference, as `compare` says it."""
    z = float(np.sum(sums) / (np.sqrt(np.sum(np.square(sums))) or 1.0))
    return chance_to_differ(z, look / LOOKS, ALPHA)
