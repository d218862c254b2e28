"""Lessons by their words, tags and scope: the questions to memory.db. Each looks at a bounded number of rows."""

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from terminalbench.archivist.tables import lesson_of
from terminalbench.archivist.words import same_lesson, words
from terminalbench.records.lesson import Lesson, LessonScope

MOST_WORDS = 12
"""No more words than these are asked for; the rarest first."""
MOST_POSTINGS = 2000
"""No more places than these are looked at for the words of one question; the rarest word is always asked for."""
_LONGEST_QUERY = 200


class Scope(NamedTuple):
    """A scope of lessons, as `repository` with its value."""

    kind: LessonScope
    value: str | None = None


def by_words(connection: sqlite3.Connection, text: str, limit: int) -> list[int]:
    """The numbers of the lessons that have most to do with a text (BM25), best first."""
    query = _query(connection, text)
    if query is None:
        return []
    statement = "SELECT rowid FROM lesson_words WHERE lesson_words MATCH ? ORDER BY rank LIMIT ?"
    return [row[0] for row in connection.execute(statement, (query, limit))]


def by_tags(connection: sqlite3.Connection, tags: Iterable[str], limit: int) -> list[int]:
    """The numbers of active lessons with one of the tags: of each tag those that are worth most."""
    found: dict[int, int] = {}
    for tag in dict.fromkeys(tags):
        rows = connection.execute(
            "SELECT lesson FROM tags WHERE tag = ? AND state = 'active' ORDER BY weight DESC, lesson LIMIT ?",
            (tag, limit),
        )
        for row in rows:
            found[row[0]] = found.get(row[0], 0) + 1
    return sorted(found, key=lambda number: -found[number])


def by_scope(connection: sqlite3.Connection, scopes: Sequence[Scope], limit: int) -> list[int]:
    """The numbers of active lessons of these scopes, in their order; of each those that are worth most."""
    found: list[int] = []
    for scope in scopes:
        rows = connection.execute(
            "SELECT number FROM lessons WHERE scope = ? AND scope_value IS ? AND state = 'active' "
            "ORDER BY weight DESC, number LIMIT ?",
            (scope.kind, scope.value, limit),
        )
        found += [row[0] for row in rows]
    return found


def lessons_numbered(
    connection: sqlite3.Connection, numbers: Iterable[int], scopes: Collection[Scope] | None = None
) -> dict[int, Lesson]:
    """The lessons with these numbers; with `scopes`, the active ones of these alone: the others are not even read."""
    wanted = ",".join(map(str, dict.fromkeys(numbers)))
    where = f"number IN ({wanted})" + (" AND state = 'active'" if scopes is not None else "")
    rows = connection.execute(f"SELECT number, scope, scope_value, record FROM lessons WHERE {where}")  # noqa: S608
    return {row[0]: lesson_of(row[3]) for row in rows if scopes is None or (row[1], row[2]) in scopes}


def near_duplicate(connection: sqlite3.Connection, lesson: Lesson) -> Lesson | None:
    """The lesson that says the same (see `words.same_lesson`), whatever its state, unless another took its place.

    One of simulated trials takes up nothing else: it is told to simulated agents only.
    """
    numbers = by_words(connection, f"{lesson.do or ''} {lesson.avoid or ''}", 50)
    found = lessons_numbered(connection, numbers)
    for number in numbers:
        other = found[number]
        if other.simulated and not lesson.simulated:
            continue
        if other.id != lesson.id and other.superseded_by is None and same_lesson(lesson, other):
            return other
    return None


def _query(connection: sqlite3.Connection, text: str) -> str | None:
    """The words of a text as a question of FTS5, quoted; the rarest of them, common ones left out."""
    counts = _counts(connection, list(dict.fromkeys(words(text)))[:_LONGEST_QUERY])
    chosen: list[str] = []
    postings = 0
    for word in sorted(counts, key=lambda word: (counts[word], word)):
        postings += counts[word]
        if chosen and (postings > MOST_POSTINGS or len(chosen) == MOST_WORDS):
            break
        chosen.append(word)
    return " OR ".join('"' + word.replace('"', '""') + '"' for word in chosen) or None


def _counts(connection: sqlite3.Connection, asked: Sequence[str]) -> dict[str, int]:
    """Return in how many lessons each word stands; words that stand in none are left out."""
    marks = ",".join("?" * len(asked))
    query = f"SELECT word, lessons FROM word_counts WHERE word IN ({marks}) AND lessons > 0"  # noqa: S608  marks alone
    return {row["word"]: row["lessons"] for row in connection.execute(query, asked)}
