"""What memory holds, for people: lists, histories, counts; and taking lessons along to another project."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec.structs import replace

from terminalbench.archivist.checks import check_fields
from terminalbench.archivist.entries import MemoryEntry
from terminalbench.archivist.memory import AddedLesson, add_imported, find
from terminalbench.archivist.store import LogProblem, Store
from terminalbench.archivist.tables import by_words, lesson_of, lessons_numbered
from terminalbench.decode import NOT_DECODED, decoder
from terminalbench.errors import InvalidFile, Problem, UserError
from terminalbench.records.lesson import Lesson, LessonKind, LessonScope, LessonState


@dataclass(frozen=True)
class LessonFilter:
    """Which lessons are wanted; what is None does not matter."""

    state: LessonState | None = None
    kind: LessonKind | None = None
    scope: LessonScope | None = None
    tag: str | None = None

    def fits(self, lesson: Lesson) -> bool:
        """Return whether a lesson is one of them."""
        wanted = ((self.state, lesson.state), (self.kind, lesson.kind), (self.scope, lesson.scope))
        return all(asked is None or asked == has for asked, has in wanted) and self.tag in (None, *lesson.tags)


def each_lesson(store: Store, wanted: LessonFilter | None = None) -> Iterator[Lesson]:
    """The lessons, newest first."""
    wanted = wanted or LessonFilter()
    for row in store.connection.execute("SELECT record FROM lessons ORDER BY number DESC"):
        lesson = lesson_of(row[0])
        if wanted.fits(lesson):
            yield lesson


def search(store: Store, text: str, wanted: LessonFilter, limit: int) -> list[Lesson]:
    """The lessons that have most to do with a text, whatever their state unless it is asked for."""
    numbers = by_words(store.connection, text, 20 * limit)
    known = lessons_numbered(store.connection, numbers)
    return [known[number] for number in numbers if wanted.fits(known[number])][:limit]


class LessonOrder(StrEnum):
    """In which order lessons are listed."""

    NEWEST = "newest"
    EFFECT = "effect"
    HARM = "harm"
    IMPORTANCE = "importance"


def _of(path: str) -> str:
    """A field of a lesson in SQL; its record is JSON, kept as bytes."""
    return f"json_extract(CAST(record AS TEXT), '$.{path}')"


_ORDERED = {
    LessonOrder.NEWEST: "number DESC",
    LessonOrder.EFFECT: f"{_of('utility.mean')} DESC NULLS LAST, number DESC",
    LessonOrder.HARM: f"{_of('utility.mean')} ASC NULLS LAST, number DESC",
    LessonOrder.IMPORTANCE: f"coalesce({_of('importance')}, 0.5) DESC, number DESC",
}
_SEARCHED = " || ' ' || ".join(["id", *(f"coalesce({_of(name)}, '')" for name in ("do", "avoid", "tags", "author"))])


@dataclass(frozen=True)
class LessonPage:
    """Some lessons of a list, and how many there are in all."""

    lessons: list[Lesson]
    total: int


def page_of_lessons(
    store: Store, text: str, state: LessonState | None, order: LessonOrder, limit: int, offset: int = 0
) -> LessonPage:
    """Lessons of a state that have every word of `text` in their text, id, tags or author; a part of the list."""
    where, values = ["1"], []
    if state is not None:
        where.append("state = ?")
        values.append(state)
    for word in text.lower().split():
        where.append(f"instr(lower({_SEARCHED}), ?)")
        values.append(word)
    asked = f"FROM lessons WHERE {' AND '.join(where)}"
    total = store.connection.execute(f"SELECT count(*) {asked}", values).fetchone()[0]
    query = f"SELECT record {asked} ORDER BY {_ORDERED[order]} LIMIT ? OFFSET ?"
    rows = store.connection.execute(query, (*values, limit, offset))
    return LessonPage([lesson_of(row[0]) for row in rows], total)


def history(store: Store, lesson: str | None = None, limit: int | None = None) -> list[MemoryEntry]:
    """The entries of the log, newest first: all, or those about one lesson."""
    where, values = "", []
    if lesson is not None:
        where, values = "WHERE seq IN (SELECT seq FROM entry_lessons WHERE lesson = ?)", [find(store, lesson).id]
    query = f"SELECT record FROM entries {where} ORDER BY seq DESC LIMIT ?"  # noqa: S608  our own words
    decode = decoder(MemoryEntry).decode
    return [decode(row[0]) for row in store.connection.execute(query, (*values, -1 if limit is None else limit))]


class Stats(msgspec.Struct, frozen=True):
    """How much memory holds. `measured` are lessons whose effect was measured."""

    lessons: int
    states: dict[str, int]
    kinds: dict[str, int]
    scopes: dict[str, int]
    tags: dict[str, int]
    authors: dict[str, int]
    measured: int
    entries: int
    problems: list[LogProblem]


def stats(store: Store) -> Stats:
    """Counts of everything; tags and authors by how many lessons have them."""
    found = list(each_lesson(store))
    return Stats(
        lessons=len(found),
        states=_counted(lesson.state for lesson in found),
        kinds=_counted(lesson.kind for lesson in found),
        scopes=_counted(lesson.scope for lesson in found),
        tags=_counted(tag for lesson in found for tag in lesson.tags),
        authors=_counted(lesson.author or "unknown" for lesson in found),
        measured=sum(lesson.utility is not None for lesson in found),
        entries=store.connection.execute("SELECT count(*) FROM entries").fetchone()[0],
        problems=store.problems(),
    )


def why_nothing_is_known(found: Stats, trials: int) -> str | None:
    """Return why no effect of a lesson is known yet, and what to do about it; None where one is.

    `trials` are those that lessons were eligible for, in the results that were looked at.
    """
    if found.measured:
        return None
    if not found.lessons:
        return "Effects are unknown: memory is empty. `tbench memory reflect BATCH` or `tbench memory add` fills it."
    if not found.states.get(LessonState.ACTIVE):
        return "Effects are unknown: no lesson is active. `tbench memory list` says why."
    if not trials:
        said = "Effects are unknown: lessons were not offered to any trial."
        return f'{said} `tbench overnight --lessons`, or `lessons = "masked"` in a profile, offers them at random.'
    return f"Effects are unknown: {trials} trials with lessons are not counted yet. `tbench memory learn` counts them."


def _counted(names: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[str(name)] = counts.get(str(name), 0) + 1
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


@dataclass(frozen=True)
class LessonImport:
    """What came of the lessons in a file; `left_out` were retired or quarantined there."""

    added: tuple[AddedLesson, ...]
    left_out: int


def import_lessons(store: Store, file: Path, *, by: str) -> LessonImport:
    """Add the lessons that a file of `export` holds, as candidates: they were measured and approved elsewhere.

    Every line is read before the first is added. Those that say the same as one that is here become part of it.
    """
    lessons: list[Lesson] = []
    problems: list[Problem] = []
    decode = decoder(Lesson).decode
    for number, line in enumerate(file.read_bytes().split(b"\n"), start=1):
        try:
            if line.strip():
                lessons.append(decode(line))
                if _travels(lessons[-1]):
                    check_fields(lessons[-1])
        except NOT_DECODED as error:
            problems.append(Problem(f"line {number}", f"is not a lesson: {error}"))
        except UserError as error:
            problems.append(Problem(f"line {number}", error.what, error.hint))
    if problems:
        raise InvalidFile(str(file), problems)
    wanted = list(filter(_travels, lessons))
    drafts = [replace(one, id="", utility=None, effects=[], superseded_by=None, reason=None) for one in wanted]
    added = [add_imported(store, draft, by=by) for draft in drafts]
    return LessonImport(tuple(added), len(lessons) - len(wanted))


def _travels(lesson: Lesson) -> bool:
    return lesson.state in (LessonState.ACTIVE, LessonState.CANDIDATE)
