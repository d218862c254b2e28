"""How often a night raises an alert when nothing changes, and when its last iteration is worse by a known amount.

The rule is the one of `delta.json`: each night is drawn, made into iterations, and judged by `overnight.delta`.
"""

from itertools import pairwise

import numpy as np

from support.iterations import iteration
from terminalbench.analytics.stats import Stratum, stratified
from terminalbench.overnight.delta import ALPHA, counts_of, delta
from terminalbench.overnight.iteration_results import IterationResults
from terminalbench.overnight.model_summary import NIGHTS, level_of, noise_floor

ITERATIONS = 10
LOWEST, HIGHEST = 0.05, 0.95
"""Tasks pass with rates between these, each rate as often as another."""
LOSSES = (0.15, 0.3)


def night(random: np.random.Generator, tasks: int, attempts: int, lost: float = 0.0) -> list[IterationResults]:
    """A night whose last iteration passes each task with a chance that is lower by `lost`, at least 0."""
    rates = random.uniform(LOWEST, HIGHEST, tasks)
    made = []
    for number in range(1, ITERATIONS + 1):
        chances = np.maximum(0.0, rates - lost) if number == ITERATIONS else rates
        passed = (random.random((tasks, attempts)) < chances[:, None]).tolist()
        marks = {f"t{task}": "".join("+" if one else "x" for one in row) for task, row in enumerate(passed)}
        made.append(iteration(number, marks))
    return made


def quiet_nights(tasks: int, attempts: int, nights: int, seed: int = 9) -> dict[str, float]:
    """The share of nights in which nothing changes that raise an alert, and that say more than luck spreads them."""
    random = np.random.default_rng((seed, tasks, attempts))
    alerts = wide = 0
    for _ in range(nights):
        made = night(random, tasks, attempts)
        found = [delta(one, made[:place], ITERATIONS).profiles[0] for place, one in enumerate(made)]
        alerts += any(one.alert is not None for one in found)
        p = noise_floor([counts_of(one.profiles[0]) for one in made]).p
        wide += p is not None and p <= ALPHA
    return {"alert": alerts / nights, "spread beyond luck": wide / nights}


def quiet_months(tasks: int, attempts: int, months: int, profiles: int = 2, seed: int = 11) -> dict[str, float]:
    """The share of months of nights in which nothing changes that say "better" or "worse" of a profile at least once.

    Each night is compared with the one before. Beside it, what each at 5 % would say.
    """
    random = np.random.default_rng((seed, tasks, attempts))
    said = alone = 0
    for _ in range(months):
        smallest = 1.0
        for _ in range(profiles):
            rates = random.uniform(LOWEST, HIGHEST, tasks)
            nights = random.binomial(attempts, rates, (NIGHTS + 1, tasks)).tolist()
            for older, newer in pairwise(nights):
                strata = [Stratum(n, attempts, o, attempts) for n, o in zip(newer, older, strict=True)]
                smallest = min(smallest, stratified(strata).two_sided)
        said += smallest <= level_of(profiles)
        alone += smallest <= ALPHA
    return {"a month says so": said / months, "each night at 5 %": alone / months}


def worse_endings(tasks: int, attempts: int, lost: float, nights: int, seed: int = 10) -> float:
    """The share of nights whose last iteration is worse, and is alerted."""
    random = np.random.default_rng((seed, tasks, attempts, round(100 * lost)))
    found = 0
    for _ in range(nights):
        *before, last = night(random, tasks, attempts, lost)
        found += delta(last, before, ITERATIONS).profiles[0].alert is not None
    return found / nights


def judged_nights(tasks: int, attempts: int, nights: int) -> dict[str, float]:
    """Everything docs/design/statistics-measured.md says of nights of one size."""
    worse = {f"loses {100 * lost:.0f} points": worse_endings(tasks, attempts, lost, nights) for lost in LOSSES}
    return {**quiet_nights(tasks, attempts, nights), **worse}
