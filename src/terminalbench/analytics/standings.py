"""Many profiles beside each other: rates with partial pooling, ranks, who may be the best. No verdict.

One model over tasks and profiles: a result is the profile's own rate, what the task adds for every profile, and what is
between the two by chance. Profiles' rates are drawn towards each other as far as their spread is no more than luck, so
that the best of many equal ones looks no better than it is. numpy is loaded only where there are three or more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING, Any

from terminalbench.analytics.model import Standing
from terminalbench.analytics.summary import ProfileRows
from terminalbench.records.trial import TaskRef

if TYPE_CHECKING:
    from numpy.typing import NDArray

DRAWS = 4000
_SPREADS = 121
_ROUNDS = 60
_DEALS = 400
FEWEST_PROFILES = 3
FEWEST_TASKS = 6


@dataclass(frozen=True)
class Fit:
    """The fit over a table of tasks by profiles: `rate` as measured with the tasks' part taken out, its `error`, what
    the tasks' luck adds to all profiles alike (`common_error`), and draws of the true rates beside each other."""

    rate: "NDArray[Any]"
    error: "NDArray[Any]"
    common_error: float
    draws: "NDArray[Any]"
    tasks: int
    table: "NDArray[Any]"

    def not_worse(self, alpha: float) -> "NDArray[Any]":
        """Return which profiles are not shown worse than any other, with error `alpha` over all pairs of them.

        A profile is shown worse where another is ahead of it by more than the largest distance that equal ones reach:
        as their errors allow, and when the results of each task are dealt out to the profiles anew.
        """
        import numpy as np

        count = len(self.rate)
        random = np.random.default_rng(1)
        spread = np.sqrt(random.chisquare(max(self.tasks - 1, 1), (DRAWS, count)) / max(self.tasks - 1, 1))
        noise = random.standard_normal((DRAWS, count)) * self.error
        pair = np.sqrt(self.error[:, None] ** 2 + self.error[None, :] ** 2)
        own = np.sqrt((self.error * spread)[:, :, None] ** 2 + (self.error * spread)[:, None, :] ** 2)
        farthest = ((noise[:, :, None] - noise[:, None, :]) / np.maximum(own, 1e-12)).max(axis=(1, 2))
        far = np.quantile(farthest, 1 - alpha)
        ahead = (self.rate[:, None] - self.rate[None, :]) / np.maximum(pair, 1e-12)
        apart = self.rate[:, None] - self.rate[None, :]
        return ~((ahead > far) & (apart > self._dealt_anew(alpha)) & (pair > 0)).any(axis=0)

    def _dealt_anew(self, alpha: float) -> float:
        """The largest distance of two profiles that a share `alpha` of all deals exceeds; 0 for a table with holes."""
        import numpy as np

        if np.isnan(self.table).any():
            return 0.0
        random = np.random.default_rng(4)
        means = np.array([random.permuted(self.table, axis=1).mean(0) for _ in range(_DEALS)])
        return float(np.quantile(means.max(1) - means.min(1), 1 - alpha, method="higher"))

    def ranks(self) -> "NDArray[Any]":
        """The rank of each profile in each draw, from 1 for the best."""
        import numpy as np

        return np.argsort(np.argsort(-self.draws, axis=1), axis=1) + 1

    def rank_intervals(self, alpha: float) -> list[tuple[int, int]]:
        """The fewest neighbouring ranks of each profile that hold it in at least `1 - alpha` of the draws."""
        import numpy as np

        found, count = [], len(self.rate)
        for ranks in self.ranks().T:
            below = np.concatenate([[0], np.cumsum(np.bincount(ranks, minlength=count + 1)[1:])])
            held = below[None, 1:] - below[:-1, None]  # by first and last rank
            enough = np.argwhere(held >= (1 - alpha) * len(ranks))
            first, last = min(enough.tolist(), key=lambda ends: (ends[1] - ends[0], -held[ends[0], ends[1]]))
            found.append((first + 1, last + 1))
        return found


def fit(table: "NDArray[Any]", counts: "NDArray[Any]") -> Fit:
    """The fit of mean results (tasks by profiles, NaN where nothing was measured), from so many attempts each."""
    import numpy as np

    known = ~np.isnan(table)
    values = np.where(known, table, 0.0)
    rates = values.sum(0) / known.sum(0)
    own = np.zeros(len(table))
    for _ in range(_ROUNDS if not known.all() else 2):
        own = np.where(known, values - rates, 0.0).sum(1) / np.maximum(known.sum(1), 1)
        rates = np.where(known, values - own[:, None], 0.0).sum(0) / known.sum(0)
    rates, own = rates + own.mean(), own - own.mean()
    left = np.where(known, values - own[:, None] - rates, 0.0)
    profiles = table.shape[1]
    beside = np.where(known, 1 - 1 / np.maximum(known.sum(1), 1)[:, None], 0.0).sum(0)  # alone, a task tells nothing
    measured = np.maximum(beside * profiles / (profiles - 1), 1.0)
    free = np.maximum(measured - 1, 1) * (profiles - 1) / profiles
    luck = (left**2).sum(0) / free
    pooled = luck.mean()
    luck = (measured * luck + _SHARED * pooled) / (measured + _SHARED)
    luck = np.maximum(luck, 0.25 / np.maximum(counts.sum(0), 1) / 4)
    error = np.sqrt(luck / measured)
    common = float(np.sqrt(own.var(ddof=1) / len(table))) if len(table) > 1 else 0.5
    return Fit(rates, error, common, _draws(rates, error), round(measured.min()), table)


_SHARED = 20
"""A profile's own luck is drawn towards that of all as if so many tasks had told the latter."""


def _draws(rates: "NDArray[Any]", error: "NDArray[Any]") -> "NDArray[Any]":
    """Draws of the true rates: of their spread first (every one as likely as another before), then of each rate."""
    import numpy as np

    random = np.random.default_rng(0)
    widest = 2 * max(float(rates.std()), float(error.max())) + 1e-6
    spreads = np.linspace(0.0, 2 * widest, _SPREADS)
    variance = spreads[:, None] ** 2 + error**2
    weight = 1 / variance
    middle = (weight * rates).sum(1) / weight.sum(1)
    chance = 0.5 * np.log(weight).sum(1) - 0.5 * np.log(weight.sum(1))
    chance -= 0.5 * (weight * (rates - middle[:, None]) ** 2).sum(1)
    chance = np.exp(chance - chance.max())
    at = random.choice(_SPREADS, DRAWS, p=chance / chance.sum())
    centre = middle[at] + random.standard_normal(DRAWS) / np.sqrt(weight.sum(1)[at])
    pull = error**2 / variance[at]
    mean = rates + pull * (centre[:, None] - rates)
    within = np.sqrt(spreads[at][:, None] ** 2 * pull)
    return mean + within * random.standard_normal((DRAWS, len(rates)))


def table_of(profiles: Mapping[str, ProfileRows], tasks: Sequence[TaskRef]) -> tuple["NDArray[Any]", "NDArray[Any]"]:
    """The pass rates of tasks by profiles, and of how many measured attempts each."""
    import numpy as np

    counts = np.zeros((len(tasks), len(profiles)))
    passed = np.zeros_like(counts)
    for place, profile in enumerate(profiles.values()):
        for row, task in enumerate(tasks):
            _, counts[row, place], passed[row, place] = profile.counts.get(task, (0, 0, 0))
    with np.errstate(invalid="ignore", divide="ignore"):
        return passed / counts, counts


def _front_shares(
    profiles: Mapping[str, ProfileRows], tasks: Sequence[TaskRef], draws: "NDArray[Any]"
) -> dict[str, float]:
    """Return in what share of the draws no other profile passes as much for less, or more for as much, by profile of
    known cost.

    The cost of each is drawn with weights of its tasks (a Bayesian bootstrap), the same for all profiles.
    """
    import numpy as np

    places = [
        n
        for n, one in enumerate(profiles.values())
        if all(r.cost_usd is not None and not r.no_model for r in one.rows())
    ]
    if len(places) < 2:
        return {}
    names = [*profiles]
    found = [profiles[names[n]].values("cost_usd", measured_only=False) for n in places]
    costs = np.array(
        [[fsum(one[task]) / len(one[task]) if one.get(task) else np.nan for task in tasks] for one in found]
    )
    if np.isnan(costs).any():
        return {}
    weights = np.random.default_rng(3).dirichlet(np.ones(len(tasks)), len(draws))
    spent, rates = weights @ costs.T, draws[:, places]
    on = np.ones_like(spent, dtype=bool)
    for one in range(len(places)):
        for other in range(len(places)):
            as_good = (rates[:, other] >= rates[:, one]) & (spent[:, other] <= spent[:, one])
            on[:, one] &= ~(as_good & ((rates[:, other] > rates[:, one]) | (spent[:, other] < spent[:, one])))
    return {names[n]: float(share) for n, share in zip(places, on.mean(0), strict=True)}


def standings(profiles: Mapping[str, ProfileRows], alpha: float) -> list[Standing]:
    """Three or more measured profiles, the highest rate first; nothing where there are fewer, or too few tasks."""
    measured = {name: one for name, one in profiles.items() if any(count for _, count, _ in one.counts.values())}
    every = dict.fromkeys(task for one in measured.values() for task in one.tasks)
    tasks = [task for task in every if sum(one.counts.get(task, (0, 0, 0))[1] > 0 for one in measured.values()) > 1]
    if len(measured) < FEWEST_PROFILES or len(tasks) < FEWEST_TASKS:
        return []
    import numpy as np

    table, counts = table_of(measured, tasks)
    if (counts.sum(0) == 0).any():
        return []
    found = fit(table, counts)
    wide = found.draws + np.random.default_rng(2).standard_normal((DRAWS, 1)) * found.common_error
    ends = np.clip(np.quantile(wide, [alpha / 2, 1 - alpha / 2], axis=0), 0.0, 1.0)
    ranks = found.rank_intervals(alpha)
    shrunken, best = np.clip(found.draws.mean(0), 0.0, 1.0), found.not_worse(alpha)
    fronts = _front_shares(measured, tasks, found.draws)
    made = [
        Standing(
            profile=name,
            rate=float(shrunken[place]),
            low=float(ends[0, place]),
            high=float(ends[1, place]),
            level=1 - alpha,
            best_rank=ranks[place][0],
            worst_rank=ranks[place][1],
            not_worse_than_best=bool(best[place]),
            on_front=fronts.get(name),
        )
        for place, name in enumerate(measured)
    ]
    return sorted(made, key=lambda one: -one.rate)
