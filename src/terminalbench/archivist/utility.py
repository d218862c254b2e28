"""What a lesson is worth: a belief about its effect on the chance to pass. Pure.

Before any trial the belief comes from the importance that its author gave it. Afterwards it comes from trials for which
the lesson was eligible, and which were shown it or not by chance alone: what differs between the two is its effect.
With few trials the belief stays near zero (shrinkage); no test of a single lesson is made.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from terminalbench.records.lesson import Lesson, Utility

PRIOR_SD = 0.08
"""How far a lesson's effect is believed to lie from zero before any trial: eight points of pass rate."""
HARM = 0.8
"""From this probability of harm on, a lesson is retired."""
CARRIED = 0.5
"""The correlation that is assumed between the effects of a lesson on two models."""
_IMPORTANCE_SPAN = 0.08
"""How far the importance of a lesson moves that belief, from 0 to 1."""
_LEAST_VARIANCE = 0.01
"""Of the outcome of a trial of a task: where all of them ended alike, one more would still tell only so much."""


@dataclass(frozen=True)
class ExposedTrial:
    """A measured trial: which lessons were eligible, which of them it was shown, and whether it passed.

    `group` are trials that differ in nothing but chance: of one task, by one policy, with the same lessons eligible.
    """

    group: str
    passed: bool
    eligible: frozenset[str]
    shown: frozenset[str] = field(default_factory=frozenset)


def prior(importance: float) -> Utility:
    """What is believed of a lesson before any trial."""
    return Utility(mean=(importance - 0.5) * _IMPORTANCE_SPAN, sd=PRIOR_SD, n=0)


def believed(lesson: Lesson, model: str | None = None, *, simulated: bool = True) -> Utility:
    """What is believed of a lesson now; with a model, of its effect on that one.

    What was measured on another model is half believed: nearer to the prior, and nearly as unsure. Not `simulated`:
    what simulated trials showed says nothing.
    """
    known = lesson.utility  # a real one, where there is any
    if known is None or (known.simulated and not simulated):
        return prior(lesson.importance)
    if model is None:
        return known
    allowed = (one for one in lesson.effects if simulated or not one.simulated)
    same = [one for one in allowed if one.model == model and not one.own]
    return max(same, key=lambda one: not one.simulated) if same else carried(known, lesson.importance)


def carried(effect: Utility, importance: float) -> Utility:
    """What an effect that was measured on one model says of another one, before a trial of that."""
    start = prior(importance)
    mean = start.mean + CARRIED * (effect.mean - start.mean)
    sd = math.sqrt(CARRIED**2 * effect.sd**2 + (1 - CARRIED**2) * start.sd**2)
    return Utility(mean, sd, 0)


def weight(lesson: Lesson, model: str | None = None, *, simulated: bool = True) -> float:
    """How much a lesson counts when several would do, from 0 to 1; one half where nothing speaks for or against it."""
    belief = believed(lesson, model, simulated=simulated)
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, belief.mean / max(belief.sd, 1e-6)))))


def chance_of_harm(belief: Utility) -> float:
    """The probability that the effect is below zero."""
    return 0.5 * math.erfc(belief.mean / max(belief.sd, 1e-9) / math.sqrt(2))


def is_harmful(belief: Utility) -> bool:
    """Whether a lesson is to be retired. Its importance alone is never enough."""
    return chance_of_harm(belief) > HARM


def learn(exposures: Sequence[ExposedTrial], priors: Mapping[str, Utility]) -> dict[str, Utility]:
    """What is believed of each lesson with a prior, after these trials: all effects at once, compared within groups.

    A Bayesian linear regression of the outcome on what was shown. Lessons that were shown together share what happened;
    `n` are the trials for which a lesson was eligible. One that was never eligible keeps its prior.
    """
    import numpy as np

    names = sorted(priors)
    place = {name: at for at, name in enumerate(names)}
    groups = {name: at for at, name in enumerate(sorted({one.group for one in exposures}))}
    if not exposures or not names:
        return dict(priors)
    shown = np.zeros((len(exposures), len(names)))
    outcome = np.array([float(one.passed) for one in exposures])
    group = np.array([groups[one.group] for one in exposures])
    seen, given = np.zeros(len(names), dtype=int), np.zeros(len(names), dtype=int)
    for row, one in enumerate(exposures):
        had = [place[name] for name in one.shown if name in place]
        shown[row, had] = 1.0
        given[had] += 1
        seen[[place[name] for name in one.eligible if name in place]] += 1
    sizes = np.bincount(group, minlength=len(groups))
    outcome = outcome - (np.bincount(group, outcome) / sizes)[group]
    means = np.zeros((len(groups), len(names)))
    np.add.at(means, group, shown)
    shown = shown - (means / sizes[:, None])[group]
    free = max(1, len(exposures) - len(groups))
    variance = max(_LEAST_VARIANCE, float(outcome @ outcome) / free)
    believed_mean = np.array([priors[name].mean for name in names])
    precision = np.diag([1 / max(priors[name].sd, 1e-6) ** 2 for name in names])
    covariance = np.linalg.inv(shown.T @ shown / variance + precision)
    mean = covariance @ (shown.T @ outcome / variance + precision @ believed_mean)
    sd = np.sqrt(np.diag(covariance))
    return {
        name: Utility(float(mean[at]), float(sd[at]), int(seen[at]), int(given[at])) if seen[at] else priors[name]
        for name, at in place.items()
    }
