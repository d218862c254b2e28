"""What a lesson is worth: a belief about its effect on the chance to pass. Pure.

Before any trial the belief comes from the importance that its author gave it. Afterwards it comes from trials for which
the lesson was eligible, and which were shown it or not by chance alone: what differs between the two is its effect.
With few trials the belief stays near zero (shrinkage); no test of a single lesson is made.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

from terminalbench.records.lesson import Lesson, Utility

if TYPE_CHECKING:
    import numpy as np

PRIOR_SD = 0.08
"""How far a lesson's effect is believed to lie from zero before any trial: eight points of pass rate."""
SPREAD = 0.06
"""How far the effect on the tasks of one family is believed to lie from that on all: six points of pass rate."""
HARM = 0.9
"""From this probability of harm on, a lesson is retired. It is looked at after every iteration: of lessons that help by
five points about 3 % are lost in thirty looks (docs/design/learning-measured.md)."""
LITTLE, IDLE, IDLE_SD = 0.02, 0.1, 0.035
"""A lesson is idle that is known to within `IDLE_SD`, and helps by two points with a probability below `IDLE`."""
RETURN = 0.5
"""Below this probability of harm a lesson that was retired by its effect is used again."""
PROVEN = 0.95
"""From this probability that it helps on, a lesson that was tried goes before all that are not proven."""
LEAST_SHOWN = 0.05
"""The chance to be shown of a lesson that harms for certain, while it is not retired."""
CARRIED = 0.5
"""The correlation that is assumed between the effects of a lesson on two models."""
_IMPORTANCE_SPAN = 0.08
"""How far the importance of a lesson moves that belief, from 0 to 1."""
_DIGITS = 4
_LEAST_TOLD = 1e-3
_LEAST_VARIANCE = 0.01
"""Of the outcome of a trial of a task: where all of them ended alike, one more would still tell only so much."""


class TaskFamily(NamedTuple):
    """Where a lesson is to help: the family of a task. `left_out`: what was measured there does not count."""

    family: str
    left_out: bool = False


@dataclass(frozen=True)
class ExposedTrial:
    """A measured trial: which lessons were eligible, which of them it was shown, and whether it passed.

    `group` are trials of one task by one policy. `chances` are the recorded probabilities of each showing; trials of a
    group without them must have had the same lessons eligible by the same chance. `family` is that of the task;
    else the group is one.
    """

    group: str
    passed: bool
    eligible: frozenset[str]
    shown: frozenset[str] = field(default_factory=frozenset)
    chances: Mapping[str, float] = field(default_factory=dict)
    family: str = ""


def prior(importance: float) -> Utility:
    """Return what is believed of a lesson before any trial."""
    return Utility(mean=(importance - 0.5) * _IMPORTANCE_SPAN, sd=PRIOR_SD, n=0)


def believed(
    lesson: Lesson, model: str | None = None, *, simulated: bool = True, place: TaskFamily | None = None
) -> Utility:
    """Return what is believed of a lesson now; with a model, of its effect on that one, and with a place, on its tasks.

    What was measured on another model is half believed: nearer to the prior, and nearly as unsure. Not `simulated`:
    what simulated trials showed says nothing.
    """
    known, start = lesson.utility, prior(lesson.importance)  # a real one, where there is any
    if known is None or (known.simulated and not simulated):
        return start
    if model is None:
        return _at(known, start, place)
    allowed = (one for one in lesson.effects if simulated or not one.simulated)
    same = [one for one in allowed if one.model == model and not one.own]
    if same:
        return _at(max(same, key=lambda one: not one.simulated), start, place)
    return carried(_at(known, start, place), lesson.importance)


def _at(effect: Utility, start: Utility, place: TaskFamily | None) -> Utility:
    """The effect on the tasks of one family: by what was measured there, and by what the other families say."""
    if place is None or not effect.by_family:
        return effect
    others = {name: seen for name, seen in effect.by_family.items() if name != place.family}
    rest = _over_families(others.values(), start)
    variance = rest.sd**2 + SPREAD**2
    told, score = effect.by_family.get(place.family, (0.0, 0.0)) if not place.left_out else (0.0, 0.0)
    precision = 1 / variance + told
    return Utility((rest.mean / variance + score) / precision, math.sqrt(1 / precision), effect.n, effect.shown)


def _over_families(seen: Iterable[tuple[float, float]], start: Utility) -> Utility:
    """The effect over all families: each tells its own, which lies around it by `SPREAD`."""
    precision, score = 1 / start.sd**2, start.mean / start.sd**2
    for information, told in seen:
        if information > 0:
            weight = 1 / (1 / information + SPREAD**2)
            precision += weight
            score += weight * told / information
    return Utility(score / precision, math.sqrt(1 / precision), 0)


def carried(effect: Utility, importance: float) -> Utility:
    """Return what an effect that was measured on one model says of another one, before a trial of that."""
    start = prior(importance)
    mean = start.mean + CARRIED * (effect.mean - start.mean)
    sd = math.sqrt(CARRIED**2 * effect.sd**2 + (1 - CARRIED**2) * start.sd**2)
    return Utility(mean, sd, 0)


def weight(lesson: Lesson, model: str | None = None, *, simulated: bool = True) -> float:
    """Return how much a lesson counts when several would do, from 0 to 1; one half where nothing speaks for or against
    it."""
    belief = believed(lesson, model, simulated=simulated)
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, belief.mean / max(belief.sd, 1e-6)))))


def chance_of_harm(belief: Utility) -> float:
    """The probability that the effect is below zero."""
    return 0.5 * math.erfc(belief.mean / max(belief.sd, 1e-9) / math.sqrt(2))


def is_harmful(belief: Utility) -> bool:
    """Return whether a lesson is to be retired. Its importance alone is never enough."""
    return chance_of_harm(belief) > HARM


def is_idle(belief: Utility) -> bool:
    """Return whether so much is known of a lesson that its place is better used by another: it hardly changes
    anything."""
    known = belief.n > 0 and belief.sd < IDLE_SD and not is_proven(belief)
    return known and NormalDist(belief.mean, max(belief.sd, 1e-9)).cdf(LITTLE) > 1 - IDLE


def is_proven(belief: Utility) -> bool:
    """Return whether trials have shown that a lesson helps. Its importance alone is never enough."""
    return belief.n > 0 and chance_of_harm(belief) < 1 - PROVEN


def chance_shown(belief: Utility, withhold: float) -> float:
    """The probability with which an eligible lesson is shown: the better it is believed to be, the higher.

    An untried one is withheld with the chance `withhold`, a proven one with a third of that; one that seems to harm is
    shown less and less. Never zero nor one, so that it goes on being measured; with `withhold` zero, always.
    """
    usual = 1 - withhold
    if not withhold or not belief.n:
        return usual
    helps = 1 - chance_of_harm(belief)
    if helps >= 0.5:
        return usual + (2 * helps - 1) * withhold * 2 / 3
    least = min(LEAST_SHOWN, usual)
    return least + (usual - least) * 2 * helps


def drawn(belief: Utility, number: float) -> float:
    """An effect that the belief holds for possible: its quantile at a number from 0 to 1 (a Thompson draw)."""
    return NormalDist(belief.mean, max(belief.sd, 1e-9)).inv_cdf(min(max(number, 1e-6), 1 - 1e-6))


def learn(exposures: Sequence[ExposedTrial], priors: Mapping[str, Utility]) -> dict[str, Utility]:
    """Return what is believed of each lesson with a prior, after these trials: all effects at once, compared within
    groups.

    A Bayesian linear regression of the outcome on what was shown less the chance that it had: whatever else changes
    from night to night is no effect of a lesson. Lessons that were shown together share what happened; the families of
    tasks each have an effect of their own around the common one. `n` are the trials for which a lesson was eligible.
    One that was never eligible keeps its prior.
    """
    import numpy as np

    names = sorted(priors)
    if not exposures or not names:
        return dict(priors)
    place = {name: at for at, name in enumerate(names)}
    shown, offered = np.zeros((len(exposures), len(names))), np.zeros((len(exposures), len(names)))
    chance = np.zeros((len(exposures), len(names)))
    for row, one in enumerate(exposures):
        for name in one.eligible:
            if (at := place.get(name)) is not None:
                offered[row, at], shown[row, at] = 1.0, float(name in one.shown)
                chance[row, at] = one.chances.get(name, 0.0)
    group = _numbered([one.group for one in exposures])
    outcome = _within(np.array([[float(one.passed)] for one in exposures]), group)[:, 0]
    moved = _within(shown - chance, group)
    free = max(1, len(exposures) - len(set(group)))
    variance = max(_LEAST_VARIANCE, float(outcome @ outcome) / free)
    start = np.array([priors[name].mean for name in names])
    precision = np.diag([1 / max(priors[name].sd, 1e-6) ** 2 for name in names])
    covariance = np.linalg.inv(moved.T @ moved / variance + precision)
    mean = covariance @ (moved.T @ outcome / variance + precision @ start)
    rest = outcome - moved @ mean
    places = [one.family or one.group for one in exposures]
    family = _numbered(places)
    called = list(dict.fromkeys(places))
    found = {}
    for name, at in place.items():
        if not offered[:, at].any():
            found[name] = priors[name]
            continue
        column = moved[:, at]
        alone = column @ column / variance + precision[at, at]
        share = 1 / (alone * covariance[at, at]) / variance  # what was shown together with others tells less
        told = np.bincount(family, column * column, len(called)) * share
        score = np.bincount(family, column * (rest + column * mean[at]), len(called)) * share
        seen = {
            called[n]: (round(float(told[n]), _DIGITS), round(float(score[n]), _DIGITS))
            for n in range(len(called))
            if told[n] > _LEAST_TOLD
        }
        belief = _over_families(seen.values(), priors[name])
        counts = int(offered[:, at].sum()), int(shown[:, at].sum())
        found[name] = Utility(belief.mean, belief.sd, *counts, by_family=seen)
    return found


def _numbered(names: Sequence[str]) -> "np.ndarray":
    """Each name by a number, in the order in which they come."""
    import numpy as np

    known: dict[str, int] = {}
    return np.array([known.setdefault(name, len(known)) for name in names])


def _within(values: "np.ndarray", group: "np.ndarray") -> "np.ndarray":
    """Values less the mean of their group."""
    import numpy as np

    sums = np.zeros((group.max() + 1, values.shape[1]))
    np.add.at(sums, group, values)
    return values - (sums / np.bincount(group)[:, None])[group]
