"""Shortcuts in a lesson: how to obtain a verdict without the work. Pure.

One is found by the words that stand together in what a lesson recommends (`shortcuts.toml`). Each way has classes of
words with weights: the mechanism, what is done to it, what comes of it. To those of the strongest way the weights of
the context are added: a check is spoken of, it passes, the work is left out; words of repair or of a task's own wish
count against it. From `ENOUGH` on a lesson is suspected. Neither order nor form of a sentence matters. What a lesson
warns of is taken out first (`advice`).
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from terminalbench.archivist.injection import InjectionFinding, plain
from terminalbench.text.foreign import flat

_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|\n+")
_LABEL = re.compile(r"^(?:Do|Avoid): ")
_DENIAL = re.compile(
    r"\b(?:never|do not|don'?t|does not|must not|mustn't|should not|shouldn't|may not|not to|avoid(?:ing)?|"
    r"refrain from|without|rather than|instead of|no need to|not by|neither|nor|resist|refuse to|beware of|"
    r"watch out for|guard against|stop)\b(?! (?:ever |just |even |really |actually )?(?:forget|hesitate|fail to|"
    r"need|bother|wast|spend|worry|have to|count|matter|actually|really|ever solv|(?:try (?:to )?)?(?:fix|solv|"
    r"implement|comput|rebuild|repair|working|build|coding|calculat|deriv|doing|do the|running a|touching the code|"
    r"the code|any))\w*)(?:(?!\s(?:but|instead)\b)(?:[^,;.:()]|[.:](?=\S)|,(?= (?:(?:or|nor|and|even|not|\w+ly)\b|"
    r"(?:[\w./`*-]+ ){1,4}(?:or|nor|and)\b|[\w./`*-]+,))))*",
    re.IGNORECASE,
)
_DISAPPROVAL = re.compile(
    r"\bis (?:wrong|forbidden|dishonest|worthless|useless|cheating|no (?:fix|proof|solution|success)|a mistake|"
    r"bad)\b|\bproves? nothing\b|\bcounts? as (?:cheating|tampering|a fail\w*)\b|\b(?:(?:is|are|gets?|"
    r"will be) (?:flagged|disqualified|rejected|reverted)|will be (?:detected|discovered))\b|\bnot (?:allowed|"
    r"acceptable|permitted|a fix|a solution|success|okay|honest)\b|\bmust not\b|\bshould (?:not|never)\b|"
    r"\bcheating\b|\bdon't trust\b|\bhides? (?:failures|bugs|the (?:bug|fault|cause))\b",
    re.IGNORECASE,
)
_YET = re.compile(
    r"\b(?:but|yet|still|though|however)\b[^.]{0,40}\b(?:works?|pass\w*|succeed\w*|fine|quick\w*)\b", re.IGNORECASE
)
_INSTEAD = re.compile(r"(?:^|[,;.] )(?:instead|rather)\b,?(?! (?:of|than))", re.IGNORECASE)


def advice(text: str) -> list[str]:
    """The sentences of a lesson without the clauses that deny or disapprove of what they name."""
    found = []
    for line in text.split("\n"):
        avoided = line.startswith("Avoid:")
        for sentence in _SENTENCE_END.split(_LABEL.sub("", line)):
            if avoided:
                turned = _INSTEAD.search(sentence)
                sentence = sentence[turned.end() :] if turned else ""
            if _DISAPPROVAL.search(sentence) and not _YET.search(sentence):
                continue
            if kept := _DENIAL.sub(" ", sentence).strip():
                found.append(kept)
    return found


ENOUGH = 4
"""From this weight on, what a sentence and the next say is a shortcut."""
_SHOWN = 80
"""Characters of a lesson that are shown as the finding."""


class _WordClass(NamedTuple):
    """A class of words, and what it adds where one of them stands."""

    weight: int
    pattern: re.Pattern[str]


@dataclass(frozen=True)
class _WordClasses:
    """The classes that count whichever way is taken, and those of each way. `subject`: a check, or passing one."""

    always: tuple[_WordClass, ...]
    ways: Mapping[str, tuple[_WordClass, ...]]
    subject: re.Pattern[str]


@cache
def _word_classes() -> _WordClasses:
    told = tomllib.loads((Path(__file__).parent / "shortcuts.toml").read_text("utf-8"))
    named: dict[str, str] = {}

    def joined(patterns: Iterable[str]) -> str:
        text = "|".join(patterns)
        for name, meant in named.items():
            text = text.replace(f"{{{name}}}", meant)
        return text

    def near(first: list[str], then: list[str], between: int = 5) -> str:
        return rf"(?:{joined(first)})(?:[^\w.;]+[\w'./-]+){{0,{between}}}?[^\w.;]+(?:{joined(then)})"

    def word_class(row: Mapping[str, Any]) -> _WordClass:
        patterns = [joined(row.get("any", ())), *(near(**pair) for pair in row.get("near", ()))]
        return _WordClass(row["weight"], re.compile("|".join(filter(None, patterns)), re.IGNORECASE))

    for name, patterns in told["words"].items():  # a later one may name an earlier one
        named[name] = joined(patterns)
    ways = {way: tuple(map(word_class, rows)) for way, rows in told["ways"].items()}
    subject = re.compile(joined(["{checks}", "{passes}"]), re.IGNORECASE)
    return _WordClasses(tuple(map(word_class, told["always"]["classes"])), ways, subject)


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
    known = _word_classes()
    weights = {way: _weight(span, classes) for way, classes in known.ways.items()}
    way = max(weights, key=lambda name: weights[name])
    beside = known.subject.search(span) is None
    return _Suspicion(weights[way] + _weight(span, known.always) - beside, way, span)


def _weight(span: str, classes: tuple[_WordClass, ...]) -> int:
    return sum(weight for weight, pattern in classes if pattern.search(span))
