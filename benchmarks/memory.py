"""Retrieval from a large memory: time of a question, beside asking for every word of the task without choosing.

    .venv/bin/python benchmarks/memory.py [--lessons 100000] [--questions 300]

Lessons have about 40 words of a vocabulary of 20,000 (Zipf), three tags and one of fifty scopes; a question has the 80
words of a task's text, three tags and a repository. `naive` orders all lessons that have any of the words by BM25 in
one statement. Both come from one run, on the same database. CPU is the work of the process itself: on a machine with
other work on it, the figure to look at.
"""

import argparse
import bisect
import itertools
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from terminalbench.archivist.entries import MemoryEntry, Operation
from terminalbench.archivist.retrieval import RetrievalPolicy, Situation, retrieve, tokens
from terminalbench.archivist.store import MemoryFolder, Store, open_store
from terminalbench.archivist.tables import words
from terminalbench.files import append_lines
from terminalbench.json_files import encode_line
from terminalbench.records.lesson import Lesson, LessonScope, LessonState
from terminalbench.records.trial import TaskRef

CHANCE = random.Random(5)  # noqa: S311  made-up lessons
VOCABULARY = [f"{''.join(CHANCE.choices('abcdefghijklmnoprstuvw', k=CHANCE.randint(4, 9)))}{n}x" for n in range(20_000)]
_SUMS = list(itertools.accumulate(1 / (n + 2) for n in range(len(VOCABULARY))))
TAGS = [f"tag{n}" for n in range(40)]
REPOSITORIES = [f"org/repository{n}" for n in range(50)]


def text(count: int) -> str:
    """So many words; a few are very common, most are rare."""
    return " ".join(VOCABULARY[bisect.bisect(_SUMS, CHANCE.random() * _SUMS[-1])] for _ in range(count))


def lesson(number: int) -> Lesson:
    """A lesson of a memory that has grown over many nights."""
    scoped = number % 2 == 0
    return Lesson(
        id=f"l-{number:010x}",
        do=text(40),
        tags=CHANCE.sample(TAGS, 3),
        scope=LessonScope.REPOSITORY if scoped else LessonScope.GLOBAL,
        scope_value=CHANCE.choice(REPOSITORIES) if scoped else None,
        importance=CHANCE.random(),
        source_tasks=[TaskRef(f"task{number % 900}", "d", f"family{number % 90}")],
        state=LessonState.ACTIVE if number % 10 else LessonState.RETIRED,
    )


def situation() -> Situation:
    """A task as it is before its trial."""
    number = CHANCE.randrange(900)
    repository = CHANCE.choice(REPOSITORIES)
    task = TaskRef(f"task{number}", "d", f"family{number % 90}")
    return Situation(task, text(80), tuple(CHANCE.sample(TAGS, 3)), "suite", repository)


def naive(store: Store, asked: Situation) -> list[int]:
    """Every word, one statement."""
    query = " OR ".join(f'"{word}"' for word in dict.fromkeys(words(asked.text)))
    found = store.connection.execute(
        "SELECT l.number FROM lesson_words w JOIN lessons l ON l.number = w.rowid WHERE lesson_words MATCH ? "
        "AND l.state = 'active' AND (l.scope = 'global' OR l.scope_value = ?) ORDER BY w.rank LIMIT 20",
        (query, asked.repository),
    )
    return [row[0] for row in found]


class Times(NamedTuple):
    """The times of some questions in milliseconds, sorted: on the clock, and of this thread's work alone."""

    wall: list[float]
    cpu: list[float]


def times_ms(work: Callable[[Situation], object], questions: Sequence[Situation]) -> Times:
    """The time of each question. What others do on the machine is in the first alone."""
    wall, cpu = [], []
    for asked in questions:
        started, worked = time.perf_counter(), time.thread_time()
        work(asked)
        wall.append(1000 * (time.perf_counter() - started))
        cpu.append(1000 * (time.thread_time() - worked))
    return Times(sorted(wall), sorted(cpu))


def at(found: Sequence[float], share: float) -> float:
    """The time that this share of the questions took at most."""
    return found[int(len(found) * share)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lessons", type=int, default=100_000)
    parser.add_argument("--questions", type=int, default=300)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tbench-bench-") as scratch:
        folder = Path(scratch)
        lines = []
        for number in range(1, options.lessons + 1):
            made = lesson(number)
            lines.append(
                encode_line(MemoryEntry(op=Operation.ADD, id=made.id, by="bench", seq=number, time="t", lesson=made))
            )
        append_lines(MemoryFolder(folder).log, b"".join(lines))
        started = time.perf_counter()
        with open_store(folder, write=True) as store:
            built = time.perf_counter() - started
            size = MemoryFolder(folder).database.stat().st_size / 1e6
            print(f"{options.lessons} lessons, {size:.0f} MB; made from the log in {built:.1f} s")
            questions = [situation() for _ in range(options.questions)]
            others = [situation() for _ in range(options.questions)]  # nothing of them is kept from the first
            tokens("warm")
            times_ms(lambda asked: retrieve(store.connection, asked), questions[:20])
            rows = {
                "retrieve, k = 1": times_ms(lambda asked: retrieve(store.connection, asked), questions),
                "retrieve, k = 3": times_ms(
                    lambda asked: retrieve(store.connection, asked, RetrievalPolicy(k=3)), others
                ),
                "naive": times_ms(lambda asked: naive(store, asked), questions[: max(20, options.questions // 10)]),
            }
    base = at(rows["naive"].cpu, 0.5)
    print(f"{'':<18} {'p50 ms':>8} {'p95 ms':>8} {'CPU p50':>8} {'CPU p95':>8} {'of naive':>9}")
    for name, found in rows.items():
        figures = [at(times, share) for times in found for share in (0.5, 0.95)]
        print(f"{name:<18} {' '.join(f'{figure:>8.1f}' for figure in figures)} {figures[2] / base:>9.3f}")


if __name__ == "__main__":
    main()
