"""Many profiles at once where the truth is known: what partial pooling makes of their rates, ranks and best set."""

import numpy as np

from terminalbench.analytics.standings import DRAWS, fit

ALPHA = 0.05
TRUTH_TASKS = 200_000


def _chances(random: np.random.Generator, tasks: int, effects: np.ndarray) -> np.ndarray:
    """Tasks by profiles: an effect moves a task the more, the less settled it is, and not every task alike."""
    hard = random.beta(0.5, 0.6, tasks)[:, None]
    varied = effects + (random.normal(0, 0.05, (tasks, len(effects))) if effects.any() else 0.0)
    return np.clip(hard + varied * 4 * hard * (1 - hard), 0, 1)


def many_profiles(profiles: int, size: tuple[int, int], spread: float, reps: int, seed: int = 20) -> dict[str, float]:
    """Of so many profiles on (tasks, attempts): how often intervals of rate and rank hold, how the best is overstated,
    and how often a profile is shown worse than another although the spread of their effects is 0."""
    tasks, attempts = size
    random = np.random.default_rng((seed, profiles, tasks, attempts, round(1000 * spread)))
    held = ranked = told = 0.0
    raw, pooled = [], []
    for _ in range(reps):
        effects = random.normal(0, spread, profiles) if spread else np.zeros(profiles)
        truth = _chances(np.random.default_rng(seed), TRUTH_TASKS // profiles, effects).mean(0)
        passed = random.binomial(attempts, _chances(random, tasks, effects))
        found = fit(passed / attempts, np.full(passed.shape, float(attempts)))
        wide = found.draws + random.standard_normal((DRAWS, 1)) * found.common_error
        low, high = np.quantile(wide, [ALPHA / 2, 1 - ALPHA / 2], axis=0)
        held += np.mean((low <= truth) & (truth <= high))
        first, last = np.array(found.rank_intervals(ALPHA)).T
        true_rank = np.argsort(np.argsort(-truth)) + 1
        ranked += np.mean((first <= true_rank) & (true_rank <= last)) if spread else 0.0
        told += not found.not_worse(ALPHA).all()
        top, drawn = int(found.rate.argmax()), found.draws.mean(0)
        centre = (passed / attempts).mean() - truth.mean()  # luck of the tasks, which all profiles share
        raw.append(found.rate[top] - truth[top] - centre)
        pooled.append(drawn[drawn.argmax()] - truth[drawn.argmax()] - centre)
    return {
        "coverage": held / reps,
        "rank coverage": ranked / reps if spread else float("nan"),
        "shown worse": told / reps,
        "best overstated": float(np.mean(raw)),
        "best overstated, pooled": float(np.mean(pooled)),
    }
