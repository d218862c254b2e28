"""Text as words: what is indexed, what is compared, and when two lessons say the same. Pure."""

import re
from collections.abc import Iterable
from functools import lru_cache

from terminalbench.records.lesson import Lesson

_WORD = re.compile(r"--?\w[\w-]*|[^\W_](?:[\w./:+='-]*\w)?")
_ENDINGS = ("ations", "ation", "ingly", "ings", "edly", "ing", "ies", "ed", "es", "ly", "s")
_COMMON_WORDS = """
a about above again all also am an and any are as at be because been being below between both but by can
could did do does doing down during each few for from further had has have having he her here him his how i if in into
is it its itself just me more most my of off on once or other our out over own same she should so some such than
that the their them then there these they this those through to too under up very was we were what when where
which while who whom why will with would you your
"""
_TURNING = (
    "not never no without don't doesn't cannot can't won't isn't instead nor neither unless only before after until"
)
_COMMON = frozenset(_COMMON_WORDS.split())
"""Words that say nothing."""
TURNING = frozenset(_TURNING.split())
"""Words that turn a sentence round."""
SAME_SHARE = 0.8
"""From this share of common words on, two lessons say the same."""


def words(text: str) -> list[str]:
    """The words of a text in its order, in lower case, without common ones and endings; names keep their form."""
    found = (word.lower() for word in _WORD.findall(text.replace("’", "'")))
    return [_stem(word) for word in found if word not in _COMMON]


@lru_cache(1 << 16)
def _stem(word: str) -> str:
    if not word.isalpha() or len(word) < 5 or not word.isascii():
        return word
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            word = word[: -len(ending)]
            if word[-1] == word[-2] and word[-1] not in "aeiouls":  # committing, stopped
                word = word[:-1]
            break
    return word[:-1] if word.endswith("e") and len(word) > 4 else word


def share(one: Iterable[str], other: Iterable[str]) -> float:
    """Return how many of the words of two texts are in both (Jaccard); of no words at all, 0."""
    first, second = frozenset(one), frozenset(other)
    common = len(first & second)
    either = len(first) + len(second) - common
    return common / either if either else 0.0


def same_lesson(one: Lesson, other: Lesson) -> bool:
    """Return whether two lessons are near-duplicates.

    They have the same scope, at least `SAME_SHARE` of the words of both in common, and differ neither in a word that
    turns a sentence round (not, never, before, after, only, ...), nor in a number, an option, a name or a path, nor in
    what is to be done and what to be avoided.
    """
    if (one.scope, one.scope_value) != (other.scope, other.scope_value):
        return False
    sides = [(words(one.do or ""), words(other.do or "")), (words(one.avoid or ""), words(other.avoid or ""))]
    if any(bool(first) != bool(second) for first, second in sides):
        return False
    if any(_exact(first) != _exact(second) for first, second in sides):
        return False
    return all(share(first, second) >= SAME_SHARE for first, second in sides if first)


def _exact(found: list[str]) -> set[str]:
    """The words that two lessons must have alike: those that turn a sentence, and all that is not plain letters."""
    return {word for word in found if word in TURNING or not word.isalpha()}
