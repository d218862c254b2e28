"""Which lessons a task gets: found by words, tags and scope, fused, weighed by what they are worth, masked and diverse.

The ranking is pure: it takes lessons and the order in which each question found them. `retrieve` asks the questions.
"""

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from terminalbench.archivist.search import Scope, by_scope, by_tags, by_words, lessons_numbered
from terminalbench.archivist.utility import weight
from terminalbench.archivist.words import share, words
from terminalbench.errors import UserError
from terminalbench.records.lesson import Lesson, LessonScope
from terminalbench.records.trial import TaskRef

MOST_LESSONS = 3
BUDGET_TOKENS = 400
_POOLS = (60, 1200)
"""How many lessons a question by words returns; the second where too few of the first may be used."""
_BY_TAG = 25
_BY_SCOPE = 30
_ENOUGH = 20
_FILLING = (10, 200)
"""How many of the best-believed global lessons may fill free places; the second where too few of the first may."""
_MISFITS = 5
"""So many lessons that are too long for the budget are passed over, and no more are looked at."""
_RANK_CONSTANT = 60
"""Of reciprocal rank fusion: how little the first places differ."""
_RELEVANCE = 0.7
"""Of the choice among good ones: the rest is how little a lesson repeats those chosen before it."""
_NARROWER = {
    LessonScope.GLOBAL: 1.0,
    LessonScope.SUITE: 1.1,
    LessonScope.REPOSITORY: 1.3,
    LessonScope.FAMILY: 1.4,
    LessonScope.TASK: 1.5,
}


class Mode(StrEnum):
    """What a trial may be shown."""

    MASKED = "masked"
    """No lesson from its own task or family: what is measured is transfer."""
    RECALL = "recall"
    """Also those: what is measured is recall."""


@dataclass(frozen=True)
class Policy:
    """How many lessons a task gets, and which it may get."""

    mode: Mode = Mode.MASKED
    k: int = 1
    budget_tokens: int = BUDGET_TOKENS

    def __post_init__(self) -> None:
        if not 1 <= self.k <= MOST_LESSONS:
            raise UserError(f"a task gets 1 to {MOST_LESSONS} lessons, not {self.k}")
        if self.budget_tokens < 1:
            raise UserError(f"the budget of lessons is above zero, not {self.budget_tokens}")


@dataclass(frozen=True)
class Situation:
    """What is known of a task before an agent starts on it. `text` is its instruction.

    `model` is the agent's: an effect that was measured on it counts most. What simulated trials taught is for an agent
    that is `simulated` too. `relatives` are the tasks of its family, by id, that the experiment knows: a lesson that
    does not tell its family may come from one of them.
    """

    task: TaskRef
    text: str = ""
    tags: tuple[str, ...] = ()
    suite: str | None = None
    repository: str | None = None
    model: str | None = None
    simulated: bool = False
    relatives: frozenset[str] = frozenset()

    @property
    def scopes(self) -> list[Scope]:
        """The scopes that it is in, the narrowest first; `global` is none of them."""
        named = (
            (LessonScope.TASK, self.task.id),
            (LessonScope.FAMILY, self.task.family),
            (LessonScope.REPOSITORY, self.repository),
            (LessonScope.SUITE, self.suite),
        )
        return [Scope(kind, value) for kind, value in named if value is not None]


@dataclass(frozen=True)
class Ranked:
    """A lesson and its score."""

    lesson: Lesson
    score: float


@dataclass(frozen=True)
class Retrieved:
    """The lessons that a task gets, best first; and how many were kept from it because they come from it."""

    lessons: tuple[Ranked, ...]
    masked: int = 0


def retrieve(connection: sqlite3.Connection, situation: Situation, policy: Policy | None = None) -> Retrieved:
    """The lessons of a store that a task gets."""
    policy = policy or Policy()
    scopes = frozenset((Scope(LessonScope.GLOBAL), *situation.scopes))
    tagged = by_tags(connection, situation.tags, _BY_TAG)
    scoped = by_scope(connection, situation.scopes, _BY_SCOPE)
    known = lessons_numbered(connection, [*tagged, *scoped], scopes)
    worded: list[int] = []
    for pool in _POOLS:
        found = by_words(connection, situation.text, pool)
        known |= lessons_numbered(connection, set(found) - known.keys(), scopes)
        worded = [number for number in found if number in known]
        if len(worded) >= _ENOUGH or len(found) < pool:
            break
    fitting, allowed = _usable(known, situation, policy)
    chosen = choose(fuse(allowed, worded, situation), policy)
    for pool in _FILLING:
        if len(chosen) == policy.k:
            break
        best = by_scope(connection, [Scope(LessonScope.GLOBAL)], pool)
        more = lessons_numbered(connection, set(best) - known.keys(), scopes)
        fitting_too, allowed_too = _usable(more, situation, policy)
        fitting, allowed, known = fitting | fitting_too, allowed | allowed_too, known | more
        chosen = choose(_filling(allowed_too, situation), policy, chosen)
        if len(best) < pool or len(allowed.keys() & best) >= _MISFITS:
            break  # there are no others, or those that may be shown are too long for the room that is left
    return Retrieved(tuple(chosen), masked=len(fitting) - len(allowed))


def _usable(
    lessons: Mapping[int, Lesson], situation: Situation, policy: Policy
) -> tuple[dict[int, Lesson], dict[int, Lesson]]:
    """Of some lessons those for such an agent, and of these the ones that the mask lets through."""
    fitting = {number: one for number, one in lessons.items() if situation.simulated or not one.simulated}
    masked = policy.mode is Mode.MASKED
    return fitting, {number: one for number, one in fitting.items() if not (masked and own(one, situation))}


def _filling(lessons: Mapping[int, Lesson], situation: Situation) -> list[Ranked]:
    """Lessons that no question has found, by what they are worth; below every one that was found."""
    last = _RANK_CONSTANT + _POOLS[-1]
    ranked = [Ranked(lesson, _worth(lesson, situation) / last) for lesson in lessons.values()]
    return sorted(ranked, key=lambda one: (-one.score, one.lesson.id))


def _worth(lesson: Lesson, situation: Situation) -> float:
    return weight(lesson, situation.model, simulated=situation.simulated)


def own(lesson: Lesson, situation: Situation) -> bool:
    """Whether a lesson comes from a task or its family, or is about them: a masked trial never sees it.

    A task is known by its id, in whatever dataset: two copies of one task are one.
    """
    sources = {found.id for found in lesson.source_tasks}
    families = set(lesson.families)
    if lesson.scope is LessonScope.TASK:
        sources.add(lesson.scope_value or "")
    elif lesson.scope is LessonScope.FAMILY:
        families.add(lesson.scope_value or "")
    task = situation.task
    return not sources.isdisjoint({task.id, *situation.relatives}) or task.family in families


def fuse(lessons: Mapping[int, Lesson], worded: Sequence[int], situation: Situation) -> list[Ranked]:
    """Lessons by the sum of the reciprocals of their places by words, tags and scope, times what they are worth."""
    tags = set(situation.tags)
    shared = {number: len(tags.intersection(lesson.tags)) for number, lesson in lessons.items()}
    worth = {number: _worth(lesson, situation) for number, lesson in lessons.items()}
    orders = [
        [number for number in worded if number in lessons],
        _order((number for number in lessons if shared[number]), lambda number: (-shared[number], -worth[number])),
        _order(
            (number for number, lesson in lessons.items() if lesson.scope is not LessonScope.GLOBAL),
            lambda number: (-_NARROWER[lessons[number].scope], -worth[number]),
        ),
    ]
    scores = dict.fromkeys(lessons, 0.0)
    for order in orders:
        for place, number in enumerate(order, start=1):
            scores[number] += 1 / (_RANK_CONSTANT + place)
    ranked = [
        Ranked(lesson, scores[number] * _NARROWER[lesson.scope] * worth[number]) for number, lesson in lessons.items()
    ]
    return sorted(ranked, key=lambda one: (-one.score, one.lesson.id))


def choose(ranked: Sequence[Ranked], policy: Policy, before: Sequence[Ranked] = ()) -> list[Ranked]:
    """Those chosen before and the best of some lessons, within the budget, that do not repeat each other.

    By maximal marginal relevance.
    """
    left, chosen = list(ranked[:_ENOUGH]), list(before)
    room, misfits = policy.budget_tokens - sum(tokens(one.lesson.text) for one in before), 0
    while left and len(chosen) < policy.k and misfits < _MISFITS:
        best = _best(left, chosen, ranked[0].score)
        left.remove(best)
        size = tokens(best.lesson.text)
        if size <= room:
            chosen.append(best)
            room -= size
        else:
            misfits += 1
    return chosen


def _best(left: Sequence[Ranked], chosen: Sequence[Ranked], top: float) -> Ranked:
    """The one of most relevance for its repetition of those chosen. Those too low to win are not compared at all."""
    best, most = left[0], -1.0
    for one in left:  # by score
        relevance = _RELEVANCE * one.score / top
        if relevance <= most:
            break
        again = max((share(_said(one), _said(other)) for other in chosen), default=0.0)
        gain = relevance - (1 - _RELEVANCE) * again
        if gain > most:
            best, most = one, gain
    return best


def _said(one: Ranked) -> frozenset[str]:
    return _words_of(one.lesson.text)


@lru_cache(4096)
def _words_of(text: str) -> frozenset[str]:
    return frozenset(words(text))


@lru_cache(4096)
def tokens(text: str) -> int:
    """How many tokens a text is, counted as for every model."""
    from terminalbench.llm.model import count_text

    return count_text(text)


def _order(numbers: Iterable[int], key: Callable[[int], object]) -> list[int]:
    return sorted(numbers, key=lambda number: (key(number), number))
