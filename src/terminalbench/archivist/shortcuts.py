"""Lessons that teach how to obtain a verdict without the work, by the words that stand together in what they recommend.

Pure. Each way to do so has classes of words with weights: the mechanism, what is done to it, what comes of it. To
those of the strongest way the weights of the context are added: a check is spoken of, it passes, the work is left
out; words of repair or of a task's own wish count against it. From `ENOUGH` on a lesson is suspected. Neither order
nor form of a sentence matters. What a lesson warns of is taken out first (`advice.py`).
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from terminalbench.archivist.advice import advice
from terminalbench.archivist.injection import InjectionFinding
from terminalbench.archivist.obfuscation import plain
from terminalbench.archivist.shortcut_ways import WAYS
from terminalbench.archivist.shortcut_words import CONTEXT, SUBJECT, WeightedWords
from terminalbench.text.foreign import flat

ENOUGH = 4
"""From this weight on, what a sentence and the next say is a shortcut."""
_SHOWN = 80
"""Characters of a lesson that are shown as the finding."""


class _Suspicion(NamedTuple):
    """How much a span weighs, by which way, and the span."""

    weight: int
    way: str
    span: str


def find_shortcuts(text: str) -> Iterator[InjectionFinding]:
    """The way to a verdict without the work that a lesson teaches most plainly; nothing where it teaches none."""
    said = advice(plain(text))
    spans = [*said, *(f"{one} {other}" for one, other in pairwise(said))]
    found = max(map(_suspicion, spans), key=lambda one: one.weight, default=None)
    if found is not None and found.weight >= ENOUGH:
        yield InjectionFinding(flat(found.span, _SHOWN), f"a verdict without the work, by {found.way}")


def _suspicion(span: str) -> _Suspicion:
    weights = {way: _weight(span, classes) for way, classes in WAYS.items()}
    way = max(weights, key=lambda name: weights[name])
    beside = SUBJECT.search(span) is None
    return _Suspicion(weights[way] + _weight(span, CONTEXT) - beside, way, span)


def _weight(span: str, classes: tuple[WeightedWords, ...]) -> int:
    return sum(weight for weight, pattern in classes if pattern.search(span))
