"""The same profiles run again and again: the best batch alone, and all of them together as `compare` judges them."""

import numpy as np

from simulate.worlds import World, many_decision_p
from terminalbench.analytics.sign_flip import decision_p, sequential_flips

ALPHA = 0.05


def rerunning(world: World, size: tuple[int, int], batches: int, reps: int, seed: int = 21) -> dict[str, float]:
    """How often so many batches of (tasks, attempts) say that two profiles differ: one of them when named alone, all
    together at any time where nothing was declared, and all together at the end where that was declared."""
    tasks, attempts = size
    random = np.random.default_rng((seed, tasks, attempts, batches))
    hits = {"any one, named alone": 0, "all, as judged": 0, "all, declared": 0, "the first alone": 0}
    for _ in range(reps):
        old, new = world.draw(random, (tasks,))
        each = random.binomial(attempts, new, (batches, tasks)) - random.binomial(attempts, old, (batches, tasks))
        alone = many_decision_p(each) <= ALPHA + 1e-9
        sums = each.cumsum(axis=0)
        means = (sums / (attempts * np.arange(1, batches + 1))[:, None]).tolist()
        hits["any one, named alone"] += bool(alone.any())
        hits["all, as judged"] += sequential_flips(means, [ALPHA] * batches).look is not None
        hits["all, declared"] += decision_p(sums[-1].tolist()) <= ALPHA
        hits["the first alone"] += bool(alone[0])
    return {name: count / reps for name, count in hits.items()}
