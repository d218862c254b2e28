"""Lessons and memories for tests, and a writer that is killed while it writes.

By hand, for many kills:  .venv/bin/python tests/support/lessons.py 1000
"""

import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from terminalbench.archivist.entries import LessonChanges, MemoryEntry
from terminalbench.archivist.memory import add, edit, retire
from terminalbench.archivist.store import MemoryFolder, ProblemKind, open_store
from terminalbench.json_files import read_jsonl
from terminalbench.records.lesson import Lesson
from terminalbench.records.trial import TaskRef

PERSON = "ann"


def draft(do: str | None = None, *, avoid: str | None = None, task: str | None = None, **fields: Any) -> Lesson:
    """A lesson that is not in memory yet."""
    if task:
        fields["source_tasks"] = [TaskRef(task, "d", fields.pop("family", None))]
    return Lesson(id="", do=do, avoid=avoid, **fields)


def write_until_killed(folder: Path, acknowledged: int) -> None:
    """Add, edit and retire lessons for ever; each that is done is told by one line."""
    with open_store(folder, write=True) as store:
        round_ = 0
        while True:
            round_ += 1
            word = f"w{os.getpid()}x{round_}"
            lesson = add(store, draft(f"Look at {word} before changing {word}-settings."), by=PERSON).lesson
            os.write(acknowledged, f"add {lesson.id}\n".encode())
            if round_ % 3 == 0:
                edit(store, lesson.id, LessonChanges(importance=0.9), by=PERSON)
                os.write(acknowledged, f"edit {lesson.id}\n".encode())
            if round_ % 5 == 0:
                retire(store, lesson.id, by=PERSON, reason="test")
                os.write(acknowledged, f"retire {lesson.id}\n".encode())


def kill_a_writer(folder: Path, after: int, then_sec: float) -> list[str]:
    """Start a writer, kill it (SIGKILL) a moment after so many operations, and return what it had said to be done."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            write_until_killed(folder, writing)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as stream:
        done = [stream.readline() for _ in range(after)]
        time.sleep(then_sec)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        done += stream
    assert len([line for line in done if line]) >= after, "the writer ended by itself"
    return [line.strip() for line in done if line.endswith("\n")]


def assert_whole(folder: Path, done: list[str]) -> int:
    """Everything that was said to be done is in the log, and the store is what the log says. The entries."""
    place = MemoryFolder(folder)
    found = read_jsonl(place.log, MemoryEntry)
    assert [entry.seq for entry in found.records] == list(range(1, len(found.records) + 1))
    missing = set(done) - {f"{entry.op} {entry.id}" for entry in found.records}
    assert not missing, missing
    assert contents(folder) == contents(folder, rebuilt=True)
    with open_store(folder) as store:
        assert all(problem.kind is ProblemKind.CUT_OFF for problem in store.problems())
    return len(found.records)


def contents(folder: Path, *, rebuilt: bool = False) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of the store; or of one that is made from the log anew."""
    if rebuilt:
        with tempfile.TemporaryDirectory() as other:
            log = MemoryFolder(folder).log
            MemoryFolder(Path(other)).log.write_bytes(log.read_bytes() if log.exists() else b"")
            return contents(Path(other))
    queries = {
        "lessons": "SELECT id, state, scope, scope_value, weight, words, record FROM lessons ORDER BY id",
        "tags": "SELECT tag, t.state, t.weight, id FROM tags t JOIN lessons l ON l.number = t.lesson ORDER BY 1, 2, 3, 4",
        "words": "SELECT * FROM word_counts WHERE lessons > 0 ORDER BY word",
        "entries": "SELECT * FROM entries ORDER BY seq",
        "about": "SELECT * FROM entry_lessons ORDER BY lesson, seq",
    }
    with open_store(folder) as store:
        return {name: [tuple(row) for row in store.connection.execute(query)] for name, query in queries.items()}


def kill_many(folder: Path, rounds: int, seed: int = 7, every: int = 1) -> int:
    """Kill so many writers at random moments, look after each `every`th, and return the entries that stand at the end."""
    chance, done, entries = random.Random(seed), [], 0
    for number in range(rounds):
        done += kill_a_writer(folder, chance.randrange(4), chance.uniform(0.0, 0.01))
        if number % every == 0 or number == rounds - 1:
            entries = assert_whole(folder, done)
    return entries


if __name__ == "__main__":
    kills = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        entries = kill_many(Path(sys.argv[2] if len(sys.argv) > 2 else scratch), kills, every=10)
    print(f"{kills} kills: {entries} entries, 0 lost; log and store agree")
