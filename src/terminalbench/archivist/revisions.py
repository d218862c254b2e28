"""Whether a trial had a lesson as it reads now: what was measured of another text says nothing of this one."""

from collections.abc import Iterable, Mapping

from msgspec import UNSET
from msgspec.structs import replace

from terminalbench.archivist.entries import CountedTrial, MemoryEntry
from terminalbench.archivist.store import Store
from terminalbench.decode import decode
from terminalbench.index.exposures import LessonTrial
from terminalbench.live.model import seconds
from terminalbench.records.lesson import Lesson
from terminalbench.records.trial import Exposure

type Revised = Mapping[str, MemoryEntry]
"""By lesson, the last entry that changed its text."""


def revised(store: Store) -> Revised:
    """The lessons whose text was changed, which resets their effects."""
    query = "SELECT record FROM entries WHERE instr(record, ?) ORDER BY seq"
    rows = store.connection.execute(query, (b'"effects":[]',))
    entries = (decode(row[0], MemoryEntry) for row in rows)
    return {entry.id: entry for entry in entries if _changes_text(entry)}


def _changes_text(entry: MemoryEntry) -> bool:
    made = entry.changes
    return made is not None and made.effects == [] and (made.do is not UNSET or made.avoid is not UNSET)


def counted_before(trial: CountedTrial, seq: int, changes: Revised) -> CountedTrial:
    """A trial that an entry has counted, with the lessons whose text was changed after that."""
    later = [name for name in trial.eligible if name in changes and seq < changes[name].seq]
    return replace(trial, old=list(dict.fromkeys([*trial.old, *later]))) if later else trial


def first_starts(trials: Iterable[LessonTrial]) -> dict[tuple[str, str], float]:
    """When the first trial with a snapshot of a batch started: the lessons were looked up before that."""
    starts: dict[tuple[str, str], float] = {}
    for one in trials:
        if (start := seconds(one.started_at)) is not None:
            key = (one.batch, one.snapshot)
            starts[key] = min(starts.get(key, start), start)
    return starts


def old_texts(trial: LessonTrial, start: float | None, changes: Revised, lessons: Mapping[str, Lesson]) -> list[str]:
    """The lessons of a trial whose text was another: looked up before the change, or not as long as it is now."""

    def old(told: Exposure) -> bool:
        changed = seconds(changes[told.lesson].time)
        before = start is not None and changed is not None and start <= changed
        return before or told.characters != len(lessons[told.lesson].text)

    known = changes.keys() & lessons.keys()
    return [one.lesson for one in trial.exposures if one.lesson in known and old(one)]
