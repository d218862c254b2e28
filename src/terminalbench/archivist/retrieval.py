"""Which lessons a task gets: found by words, tags, scope and worth, ranked by their effect on it, masked and diverse.

The ranking is pure: it takes lessons and the order in which each question found them. `retrieve` asks the questions.
Proven lessons go first. The others are ranked by what their effect may be (Thompson draws), so that an untried one gets
its turn; words, tags and scope are part of what is believed before any trial. The draws are hashes of a seed.
A snapshot is what memory holds for the tasks of a batch, before it is planned: `harbor/agents/lessons.py` shows of it.
"""

import sqlite3
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from math import exp
from pathlib import Path
from typing import Any

from terminalbench.archivist.checks import read_task
from terminalbench.archivist.store import open_store
from terminalbench.archivist.tables import Scope, by_scope, by_tags, by_words, lessons_numbered, share, words
from terminalbench.archivist.utility import PRIOR_SD, TaskFamily, believed, chance_shown, drawn, is_harmful, is_proven
from terminalbench.errors import UserError
from terminalbench.experiments.lessons import EligibleLesson, LessonReader, Snapshot, chance, task_key
from terminalbench.experiments.plan import PlannedTask
from terminalbench.experiments.tables import LessonsTable
from terminalbench.files import read_plain
from terminalbench.records.lesson import Lesson, LessonScope, Utility
from terminalbench.records.trial import TaskRef

MOST_LESSONS = 3
BUDGET_TOKENS = 400
_POOLS = (60, 1200)
"""How many lessons a question by words returns; the second where too few of the first may be used."""
_BY_TAG = 25
_BY_SCOPE = 30
_ENOUGH = 20
_BY_WORTH = (30, 200)
"""How many of the best-believed global lessons are looked at; the second where too few of the first may be used."""
_MATCH = 0.08
"""So much better a lesson is believed to be that has most to do with a task, before any trial: eight points."""
_EXPLORED = 0.2
"""Where proven lessons would take all places, the chance of a task that the last one goes to another lesson."""
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


class RetrievalMode(StrEnum):
    """What a trial may be shown."""

    MASKED = "masked"
    """No lesson from its own task or family: what is measured is transfer."""
    RECALL = "recall"
    """Also those: what is measured is recall."""


@dataclass(frozen=True)
class RetrievalPolicy:
    """How many lessons a task gets, and which it may get."""

    mode: RetrievalMode = RetrievalMode.MASKED
    k: int = MOST_LESSONS
    budget_tokens: int = BUDGET_TOKENS

    def __post_init__(self) -> None:
        if not 1 <= self.k <= MOST_LESSONS:
            raise UserError(f"a task can get 1 to {MOST_LESSONS} lessons, not {self.k}")
        if self.budget_tokens < 1:
            raise UserError(f"the token budget of lessons must be at least 1, not {self.budget_tokens}")


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
class RankedLesson:
    """A lesson, its score, and what is believed of its effect on the task."""

    lesson: Lesson
    score: float
    belief: Utility | None = None

    @property
    def proven(self) -> bool:
        """Return whether trials have shown that it helps."""
        return self.belief is not None and is_proven(self.belief)


@dataclass(frozen=True)
class RetrievedLessons:
    """The lessons that a task gets, best first; and how many were kept from it because they come from it."""

    lessons: tuple[RankedLesson, ...]
    masked: int = 0


def retrieve(
    connection: sqlite3.Connection, situation: Situation, policy: RetrievalPolicy | None = None, seed: str | None = None
) -> RetrievedLessons:
    """Return the lessons of a store that a task gets; without a seed nothing is left to chance."""
    policy = policy or RetrievalPolicy()
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
    for pool in _BY_WORTH:
        best = by_scope(connection, [Scope(LessonScope.GLOBAL)], pool)
        more = lessons_numbered(connection, set(best) - known.keys(), scopes)
        fitting_too, allowed_too = _usable(more, situation, policy)
        fitting, allowed, known = fitting | fitting_too, allowed | allowed_too, known | more
        if len(best) < pool or len(allowed.keys() & best) >= _MISFITS:
            break  # there are no others, or enough may be used
    ranked = rank(allowed, fuse(allowed, worded, situation), situation, seed)
    return RetrievedLessons(tuple(pick(ranked, situation, policy, seed)), masked=len(fitting) - len(allowed))


def _usable(
    lessons: Mapping[int, Lesson], situation: Situation, policy: RetrievalPolicy
) -> tuple[dict[int, Lesson], dict[int, Lesson]]:
    """Return of some lessons those for such an agent, and of these the ones that the mask lets through."""
    fitting = {number: one for number, one in lessons.items() if situation.simulated or not one.simulated}
    masked = policy.mode is RetrievalMode.MASKED
    return fitting, {number: one for number, one in fitting.items() if not (masked and own(one, situation))}


def rank(
    lessons: Mapping[int, Lesson], match: Mapping[int, float], situation: Situation, seed: str | None = None
) -> list[RankedLesson]:
    """Return lessons by their effect on a task: first the proven, then by a draw of what the effect may be.

    `match` is how much each has to do with the task, from 0 to 1: the less is known, the more it moves the belief.
    """
    task = situation.task
    ranked = []
    for number, lesson in lessons.items():
        place = TaskFamily(task.family or task.id, left_out=_of_its_own(lesson, situation))
        belief = believed(lesson, situation.model, simulated=situation.simulated, place=place)
        moved = _MATCH * match.get(number, 0.0) * min(1.0, belief.sd / PRIOR_SD) ** 2
        hoped = Utility(belief.mean + moved, belief.sd, belief.n)
        number_drawn = 0.5 if seed is None or is_proven(belief) else chance(seed, "rank", task.id, 0, lesson.id)
        score = 1 / (1 + exp(-drawn(hoped, number_drawn) / PRIOR_SD))
        ranked.append(RankedLesson(lesson, score + is_proven(belief), belief))
    return sorted(ranked, key=lambda one: (-one.score, one.lesson.id))


def pick(
    ranked: Sequence[RankedLesson], situation: Situation, policy: RetrievalPolicy, seed: str | None = None
) -> list[RankedLesson]:
    """Return the best; where all are proven, with a bounded chance the last place goes to one that is not known yet."""
    chosen = choose(ranked, policy)
    if seed is None or len(chosen) < policy.k or not all(one.proven for one in chosen):
        return chosen
    if chance(seed, "explore", situation.task.id, 0, "") >= _EXPLORED:
        return chosen
    others = [one for one in ranked if not one.proven and not (one.belief is not None and is_harmful(one.belief))]
    return choose(others, policy, chosen[:-1]) if others else chosen


def own(lesson: Lesson, situation: Situation) -> bool:
    """Return whether a lesson is there only by its task or its family, or is about them: a masked trial never sees it.

    It is where its words come from there, and where no other task supports it. A lesson whose words come from elsewhere
    (`written_from`; a rule brings its own) is left to a task when tasks of other families support it too: it would be
    there without this family. A task is known by its id, in whatever dataset: two copies of one task are one.
    """
    task = situation.task
    if lesson.scope in (LessonScope.TASK, LessonScope.FAMILY):
        if lesson.scope_value in (task.id if lesson.scope is LessonScope.TASK else task.family, None):
            return True
        if lesson.scope is LessonScope.TASK and lesson.scope_value in situation.relatives:
            return True
    written = lesson.source_tasks if lesson.written_from is None else lesson.written_from
    if any(_related(one, situation) for one in written):
        return True
    return bool(lesson.source_tasks) and all(_related(one, situation) for one in lesson.source_tasks)


def _of_its_own(lesson: Lesson, situation: Situation) -> bool:
    """Return whether a task or its family supports a lesson: what was measured there says nothing of what it
    transfers."""
    return any(_related(one, situation) for one in lesson.source_tasks)


def _related(source: TaskRef, situation: Situation) -> bool:
    task = situation.task
    same_family = task.family is not None and source.family == task.family
    return same_family or source.id == task.id or source.id in situation.relatives


def fuse(lessons: Mapping[int, Lesson], worded: Sequence[int], situation: Situation) -> dict[int, float]:
    """Return how much lessons have to do with a task, from 0 to 1 for the best: by words, tags and scope.

    By the sum of the reciprocals of their places in each order.
    """
    tags = set(situation.tags)
    shared = {number: len(tags.intersection(lesson.tags)) for number, lesson in lessons.items()}
    orders = [
        [number for number in worded if number in lessons],
        _order((number for number in lessons if shared[number]), lambda number: -shared[number]),
        _order(
            (number for number, lesson in lessons.items() if lesson.scope is not LessonScope.GLOBAL),
            lambda number: -_NARROWER[lessons[number].scope],
        ),
    ]
    scores = dict.fromkeys(lessons, 0.0)
    for order in orders:
        for place, number in enumerate(order, start=1):
            scores[number] += 1 / (_RANK_CONSTANT + place)
    matched = {number: score * _NARROWER[lessons[number].scope] for number, score in scores.items()}
    top = max(matched.values(), default=0.0)
    return {number: score / top for number, score in matched.items()} if top else matched


def choose(
    ranked: Sequence[RankedLesson], policy: RetrievalPolicy, before: Sequence[RankedLesson] = ()
) -> list[RankedLesson]:
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


def _best(left: Sequence[RankedLesson], chosen: Sequence[RankedLesson], top: float) -> RankedLesson:
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


def _said(one: RankedLesson) -> frozenset[str]:
    return _words_of(one.lesson.text)


@lru_cache(4096)
def _words_of(text: str) -> frozenset[str]:
    return frozenset(words(text))


@lru_cache(4096)
def tokens(text: str) -> int:
    """Return how many tokens a text is, counted as for every model."""
    from terminalbench.llm.model import count_text

    return count_text(text)


def _order(numbers: Iterable[int], key: Callable[[int], object]) -> list[int]:
    return sorted(numbers, key=lambda number: (key(number), number))


_LARGEST = 1 << 20


def take_snapshot(
    root: Path,
    lessons: LessonsTable,
    tasks: Sequence[PlannedTask],
    reader: LessonReader = LessonReader(),  # noqa: B008  frozen
    known: Sequence[TaskRef] = (),
    seed: str | None = None,
) -> Snapshot:
    """The lessons of a project's memory for each task; of an empty memory, or of none, no lessons.

    `known` are all tasks of the experiment: also from one that is not planned now, a lesson may come. `seed` is that of
    what is left to chance: which of the lessons that are not known yet a task gets.
    """
    policy = RetrievalPolicy(RetrievalMode(lessons.mode), lessons.k, lessons.budget)
    families: dict[str | None, set[str]] = {}
    for ref in (*known, *(task.ref for task in tasks)):
        families.setdefault(ref.family, set()).add(ref.id)
    families.pop(None, None)
    with open_store(root / ".terminalbench") as store:
        found, masked = {}, 0
        for task in tasks:
            relatives = frozenset(families.get(task.ref.family, ()))
            situation = replace(situation_of(task), **reader._asdict(), relatives=relatives)
            retrieved = retrieve(store.connection, situation, policy, seed)
            eligible = [eligible_lesson(one, situation, lessons.withhold) for one in retrieved.lessons]
            found[task_key(task.label, task.ref.id)], masked = eligible, masked + retrieved.masked
    return Snapshot(
        mode=lessons.mode,
        k=lessons.k,
        budget=lessons.budget,
        withhold=lessons.withhold,
        tasks=found,
        masked=masked,
    )


def eligible_lesson(one: RankedLesson, situation: Situation, withhold: float) -> EligibleLesson:
    """Return a lesson as the snapshot has it, with the probability of showing it: by its effect where that is known."""
    belief = one.belief
    likely = round(chance_shown(belief, withhold), 4) if belief is not None and belief.n else None
    return EligibleLesson(one.lesson.id, one.lesson.text, own(one.lesson, situation), likely)


def situation_of(task: PlannedTask) -> Situation:
    """Return what is known of a planned task. Of one that lies in no folder of this machine, the words of its id
    alone."""
    folder = task.own_folder
    if folder is None or not (Path(folder) / "task.toml").is_file():
        return Situation(task.ref, task.ref.id.replace("-", " ").replace("_", " "), suite=task.ref.dataset)
    return situation_in(Path(folder), task.ref)


def situation_in(folder: Path, task: TaskRef) -> Situation:
    """Return what is known of a task that lies in a folder."""
    instruction, about = read_task(folder).instruction, _about(folder / "task.toml")
    return Situation(task, instruction, _tags(about), suite=task.dataset, repository=_repository(about))


def _about(file: Path) -> dict[str, Any]:
    """A task's own description; empty where it cannot be read: the check before the run says what is wrong with it."""
    try:
        return tomllib.loads((read_plain(file, _LARGEST) or b"").decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return {}


def _tags(about: dict[str, Any]) -> tuple[str, ...]:
    """Its keywords and tags, as lessons have them."""
    task, metadata = _table(about.get("task")), _table(about.get("metadata"))
    named = [words for words in (task.get("keywords"), metadata.get("tags")) if isinstance(words, list)]
    found = (str(word).strip().lower().replace(" ", "-") for words in named for word in words)
    return tuple(dict.fromkeys(filter(None, found)))


def _repository(about: dict[str, Any]) -> str | None:
    repository = _table(about.get("metadata")).get("repo")
    return repository if isinstance(repository, str) else None


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
