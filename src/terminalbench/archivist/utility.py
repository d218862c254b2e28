"""What a lesson is worth: a belief about its effect on the chance to pass. Pure.

Before any trial the belief comes from the importance that its author gave it; afterwards from trials that had it and
trials that it was withheld from by chance.
"""

import math

from terminalbench.records import Lesson, Utility

PRIOR_SD = 0.08
"""How far a lesson's effect is believed to lie from zero before any trial: eight points of pass rate."""
_IMPORTANCE_SPAN = 0.08
"""How far the importance of a lesson moves that belief, from 0 to 1."""


def prior(importance: float) -> Utility:
    """What is believed of a lesson before any trial."""
    return Utility(mean=(importance - 0.5) * _IMPORTANCE_SPAN, sd=PRIOR_SD, n=0)


def believed(lesson: Lesson) -> Utility:
    """What is believed of a lesson now."""
    return lesson.utility or prior(lesson.importance)


def weight(lesson: Lesson) -> float:
    """How much a lesson counts when several would do, from 0 to 1; one half where nothing speaks for or against it."""
    belief = believed(lesson)
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, belief.mean / max(belief.sd, 1e-6)))))


def chance_of_harm(belief: Utility) -> float:
    """The probability that the effect is below zero."""
    return 0.5 * math.erfc(belief.mean / max(belief.sd, 1e-9) / math.sqrt(2))
