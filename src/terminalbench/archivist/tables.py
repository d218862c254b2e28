"""Text as words; the tables of memory.db: how lessons and entries of the log stand in them, and questions to them.

Lessons are found by their words, tags and scope; each question looks at a bounded number of rows.
"""

import re
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from terminalbench.archivist.entries import MemoryEntry
from terminalbench.archivist.utility import weight
from terminalbench.decode import decoder
from terminalbench.records.lesson import Lesson, LessonScope

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


_EMPTY = """
    DELETE FROM lessons; DELETE FROM tags; DELETE FROM word_counts; DELETE FROM entries; DELETE FROM entry_lessons;
    DELETE FROM counted; DELETE FROM problems; INSERT INTO lesson_words (lesson_words) VALUES ('delete-all');
    UPDATE reading SET seq = 0, offset = 0, mark = '', state = '';
"""
MIGRATIONS: list[tuple[str, str]] = [
    (
        "001_lessons",
        """
        CREATE TABLE lessons (
            number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, state TEXT NOT NULL, kind TEXT NOT NULL,
            scope TEXT NOT NULL, scope_value TEXT, weight REAL NOT NULL, words TEXT NOT NULL, record BLOB NOT NULL
        );
        CREATE INDEX lessons_by_scope ON lessons (scope, scope_value, state, weight DESC);
        CREATE INDEX lessons_by_state ON lessons (state);
        CREATE TABLE tags (
            tag TEXT NOT NULL, state TEXT NOT NULL, weight REAL NOT NULL, lesson INTEGER NOT NULL,
            PRIMARY KEY (tag, state, weight DESC, lesson)
        ) WITHOUT ROWID;
        CREATE VIRTUAL TABLE lesson_words USING fts5 (
            words, content = 'lessons', content_rowid = 'number', tokenize = "ascii tokenchars '_./:+=-'''"
        );
        CREATE TABLE word_counts (word TEXT PRIMARY KEY, lessons INTEGER NOT NULL) WITHOUT ROWID;
        CREATE TABLE entries (
            seq INTEGER PRIMARY KEY, episode TEXT, record BLOB NOT NULL
        );
        CREATE INDEX entries_by_episode ON entries (episode) WHERE episode IS NOT NULL;
        CREATE TABLE entry_lessons (
            lesson TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (lesson, seq)
        ) WITHOUT ROWID;
        CREATE TABLE reading (
            one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL, offset INTEGER NOT NULL, mark TEXT NOT NULL
        );
        INSERT INTO reading VALUES (1, 0, 0, '');
        CREATE TABLE problems (kind TEXT NOT NULL, what TEXT NOT NULL);
        """,
    ),
    (
        "002_counted",
        """
        CREATE TABLE counted (trial TEXT PRIMARY KEY, seq INTEGER NOT NULL, record BLOB NOT NULL) WITHOUT ROWID;
        """,
    ),
    (
        "003_keys",
        """
        ALTER TABLE entries ADD COLUMN key TEXT NOT NULL DEFAULT '';
        CREATE INDEX entries_by_key ON entries (key);
        ALTER TABLE reading ADD COLUMN state TEXT NOT NULL DEFAULT '';
        """
        + _EMPTY,
    ),
]
"""Applied once each, in order. Never edit one that was released; add another. All of it can be made from the log again:
a migration that needs more of a lesson empties the tables and sets `reading` back.
"""

_DECODER = decoder(Lesson)


def lesson_of(record: bytes) -> Lesson:
    """A lesson as it stands in its row."""
    return _DECODER.decode(record)


def find_lesson(connection: sqlite3.Connection, name: str) -> Lesson | None:
    """The lesson called exactly `name`."""
    row = connection.execute("SELECT record FROM lessons WHERE id = ?", (name,)).fetchone()
    return lesson_of(row[0]) if row is not None else None


def put_lesson(connection: sqlite3.Connection, lesson: Lesson) -> None:
    """Write a lesson over what stands of it, with its words and tags."""
    before = connection.execute("SELECT number, words, record FROM lessons WHERE id = ?", (lesson.id,)).fetchone()
    number: int | None = None
    if before is not None:
        number = before["number"]
        _take_out(connection, before)
    indexed = " ".join(words(f"{lesson.do or ''} {lesson.avoid or ''}"))
    worth = weight(lesson)
    row = (lesson.state, lesson.kind, lesson.scope, lesson.scope_value, worth, indexed, msgspec.json.encode(lesson))
    if number is None:
        number = connection.execute(
            "INSERT INTO lessons (id, state, kind, scope, scope_value, weight, words, record) VALUES (?,?,?,?,?,?,?,?)",
            (lesson.id, *row),
        ).lastrowid
    else:
        connection.execute(
            "UPDATE lessons SET state=?, kind=?, scope=?, scope_value=?, weight=?, words=?, record=? WHERE number=?",
            (*row, number),
        )
    connection.execute("INSERT INTO lesson_words (rowid, words) VALUES (?, ?)", (number, indexed))
    _count_words(connection, indexed, 1)
    tags = ((tag, lesson.state, worth, number) for tag in dict.fromkeys(lesson.tags))
    connection.executemany("INSERT INTO tags VALUES (?, ?, ?, ?)", tags)


def _take_out(connection: sqlite3.Connection, row: sqlite3.Row) -> None:
    number, lesson = row["number"], lesson_of(row["record"])
    delete = "INSERT INTO lesson_words (lesson_words, rowid, words) VALUES ('delete', ?, ?)"
    connection.execute(delete, (number, row["words"]))
    _count_words(connection, row["words"], -1)
    tags = ((tag, lesson.state, weight(lesson), number) for tag in dict.fromkeys(lesson.tags))
    connection.executemany("DELETE FROM tags WHERE tag = ? AND state = ? AND weight = ? AND lesson = ?", tags)


def _count_words(connection: sqlite3.Connection, indexed: str, by: int) -> None:
    """Keep in how many lessons each word stands: fts5vocab would count that anew for each question, for 30 ms."""
    upsert = "INSERT INTO word_counts VALUES (?1, ?2) ON CONFLICT (word) DO UPDATE SET lessons = lessons + ?2"
    connection.executemany(upsert, ((word, by) for word in dict.fromkeys(indexed.split())))


def clear(connection: sqlite3.Connection) -> None:
    """Forget all that was read of the log."""
    for statement in filter(None, map(str.strip, _EMPTY.split(";"))):
        connection.execute(statement)


def put_entry(connection: sqlite3.Connection, entry: MemoryEntry, key: str) -> None:
    """Keep an entry, so that the history of a lesson, the lessons of an episode and what was counted are found."""
    row = (entry.seq, entry.episode, msgspec.json.encode(entry), key)
    connection.execute("INSERT INTO entries (seq, episode, record, key) VALUES (?, ?, ?, ?)", row)
    about = ((name, entry.seq) for name in dict.fromkeys((entry.id, *entry.absorbed)))
    connection.executemany("INSERT INTO entry_lessons VALUES (?, ?)", about)
    counted = ((one.id, entry.seq, msgspec.json.encode(one)) for one in entry.trials)
    connection.executemany("INSERT OR IGNORE INTO counted VALUES (?, ?, ?)", counted)


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
