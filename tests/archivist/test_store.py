"""The log and the store: what is acknowledged is never lost, and both say the same, whatever happens in between."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Generator
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

import msgspec
import pytest

from support.lessons import PERSON, assert_whole, contents, draft
from terminalbench.archivist.entries import LessonChanges, MemoryEntry, Operation
from terminalbench.archivist.memory import add, edit, find, merge, retire
from terminalbench.archivist.store import MemoryFolder, ProblemKind, open_store, repair
from terminalbench.errors import TbenchError, UserError
from terminalbench.json_files import encode_line, read_jsonl
from terminalbench.locks import changing
from terminalbench.records.lesson import LessonState

FORKING = get_context("fork")
"""Starting Python anew takes longer than most of these tests."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A memory with some of every operation."""
    with open_store(tmp_path / "m", write=True) as store:
        kept = add(store, draft("Read the build log from its first error on.", tags=["build"]), by=PERSON).lesson
        other = add(store, draft("Look for the first error in the output of make.", tags=["make"]), by=PERSON).lesson
        third = add(store, draft(avoid="Installing packages without pinning them."), by=PERSON).lesson
        edit(store, third.id, LessonChanges(importance=0.9, tags=["pip"]), by=PERSON)
        merge(store, kept.id, [other.id], by=PERSON, reason="one thing")
        retire(store, third.id, by=PERSON, reason="not true")
    return tmp_path / "m"


def log_of(folder: Path) -> Path:
    return MemoryFolder(folder).log


def problems(folder: Path, kind: ProblemKind = ProblemKind.LOST) -> list[str]:
    with open_store(folder) as store:
        return [problem.what for problem in store.problems() if problem.kind is kind]


def without_database(folder: Path) -> Path:
    for file in folder.glob("memory.db*"):
        file.unlink()
    return folder


def test_the_store_comes_back_from_the_log(folder: Path) -> None:
    before = contents(folder)
    assert len(before["lessons"]) == 3
    for file in folder.glob("memory.db*"):
        file.unlink()
    assert contents(folder) == before


def test_killed_writers_lose_nothing(tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).parents[1] / "support" / "lessons.py"), "20", str(tmp_path / "m")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert "20 kills" in ran.stdout, ran.stderr
    assert assert_whole(tmp_path / "m", []) > 20


def test_a_log_that_ends_anywhere_is_read_up_to_there(folder: Path) -> None:
    data = log_of(folder).read_bytes()
    start = data.rstrip(b"\n").rfind(b"\n") + 1
    for end in range(start, len(data), 17):
        place = folder.parent / f"cut-{end}"
        place.mkdir()
        log_of(place).write_bytes(data[:end])
        with open_store(place, write=True) as store:
            assert add(store, draft("Write the smallest program that shows the fault."), by=PERSON).lesson
        assert not problems(place)
        assert [entry.seq for entry in read_jsonl(log_of(place), MemoryEntry).records] == [1, 2, 3, 4, 5, 6]
        assert_whole(place, [])


def test_a_whole_line_without_its_newline_counts_once(folder: Path) -> None:
    log_of(folder).write_bytes(log_of(folder).read_bytes().rstrip(b"\n"))
    for file in folder.glob("memory.db*"):
        file.unlink()
    with open_store(folder, write=True) as store:
        add(store, draft("Ask git which commit changed the line."), by=PERSON)
    assert assert_whole(folder, []) == 7


@pytest.mark.parametrize("wreck", ["garbage", "zeros", "truncated"])
def test_a_damaged_database_is_set_aside_and_made_again(folder: Path, wreck: str) -> None:
    before = contents(folder)
    database = MemoryFolder(folder).database
    data = database.read_bytes()
    database.write_bytes({"garbage": b"no database" * 500, "zeros": bytes(len(data)), "truncated": data[:5000]}[wreck])
    for file in folder.glob("memory.db-*"):
        file.unlink()
    with contextlib.suppress(TbenchError):  # where it is noticed only in the middle of a question
        contents(folder)
    assert contents(folder) == before
    assert database.with_name("memory.db.damaged").exists()


def test_a_line_that_cannot_be_read_is_named_and_the_rest_counts(folder: Path) -> None:
    lines = log_of(folder).read_bytes().splitlines(keepends=True)
    lines[1] = b'{"op": "add", nonsense\n'
    log_of(folder).write_bytes(b"".join(lines))
    for file in folder.glob("memory.db*"):
        file.unlink()
    said = problems(folder)
    assert any(what.startswith("line 2 cannot be read") for what in said)
    assert "an entry before line 3 is missing" in said
    assert any(what.startswith("line 5 cannot be applied") for what in said)  # the merge of the lost lesson
    assert len(contents(folder)["lessons"]) == 2


def test_an_entry_that_is_there_twice_is_applied_once(folder: Path) -> None:
    first = log_of(folder).read_bytes().splitlines(keepends=True)[0]
    with log_of(folder).open("ab") as stream:
        stream.write(first)
    assert problems(folder, ProblemKind.AGAIN) == ["line 7 is a repetition, and was applied only once"]
    assert problems(folder) == []
    assert len(contents(folder)["lessons"]) == 3


@pytest.mark.parametrize("write", [True, False])
@pytest.mark.parametrize("change", ["gone", "shorter", "other"])
def test_another_log_is_never_taken_silently(folder: Path, change: str, write: bool) -> None:
    data = log_of(folder).read_bytes()
    if change == "gone":
        log_of(folder).unlink()
    else:
        log_of(folder).write_bytes(data[: len(data) // 2] if change == "shorter" else data[data.index(b"\n") + 1 :])
    with pytest.raises(TbenchError, match="differ from what memory.db has read"), open_store(folder, write=write):
        pass


def test_a_log_that_is_gone_is_told_where_nothing_can_be_written_too(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr("terminalbench.archivist.store.os.access", lambda *_: False)
    assert contents(folder)["lessons"]
    log_of(folder).unlink()
    with pytest.raises(TbenchError, match="differ from what memory.db has read"), open_store(folder):
        pass


@pytest.mark.parametrize("known", [True, False])
def test_an_edit_anywhere_in_the_log_is_noticed_and_counts(folder: Path, known: bool) -> None:
    data = log_of(folder).read_bytes()
    assert data.count(b"build log") == 1
    log_of(folder).write_bytes(data.replace(b"build log", b"whole log"))
    said = problems(folder if known else without_database(folder), ProblemKind.EDITED)
    assert said == ["line 1 was changed after it was written; the changed text is used"]
    assert problems(folder) == []
    with open_store(folder) as store:
        first = read_jsonl(log_of(folder), MemoryEntry).records[0].id
        assert find(store, first).do == "Read the whole log from its first error on."


def test_a_line_that_is_taken_out_is_missed(folder: Path) -> None:
    lines = log_of(folder).read_bytes().splitlines(keepends=True)
    log_of(folder).write_bytes(b"".join([*lines[:3], *lines[4:]]))
    assert problems(without_database(folder)) == ["an entry before line 4 is missing"]


def test_a_damaged_last_line_is_no_end_of_a_writer(folder: Path) -> None:
    lines = log_of(folder).read_bytes().splitlines(keepends=True)
    log_of(folder).write_bytes(b"".join([*lines[:-1], lines[-1][:60], b"\n"]))
    [said] = problems(without_database(folder))
    assert said.startswith("line 6 cannot be read: Input data was truncated")


def test_a_number_that_no_column_holds_ends_nothing(folder: Path) -> None:
    known = read_jsonl(log_of(folder), MemoryEntry).records[0].id
    line = encode_line(MemoryEntry(op=Operation.RETIRE, id=known, by="b", time="t", reason="far"))
    with log_of(folder).open("ab") as stream:
        stream.write(line.replace(b'"by"', b'"seq":99999999999999999999999,"by"'))
    before = len(contents(folder)["lessons"])
    with open_store(folder, write=True) as store:
        add(store, draft("Write down what each run has cost."), by=PERSON)
    assert len(contents(folder)["lessons"]) == before + 1


def test_logs_of_two_clones_are_merged_by_git(folder: Path) -> None:
    """The lessons of both are there, whichever side merges, and nothing is told to be wrong."""

    def git(*words: str) -> None:
        about = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
        subprocess.run(["git", "-C", folder, *about, *words], check=True, capture_output=True, timeout=60)

    def learn(texts: list[str]) -> None:
        with open_store(folder, write=True) as store:
            for text in texts:
                add(store, draft(text), by=PERSON)
        git("commit", "-am", "learned")

    git("init")
    (folder / ".gitattributes").write_text("memory.jsonl merge=union\n")
    (folder / ".gitignore").write_text("memory.db*\nmemory.lock\n")
    git("add", "-A")
    git("commit", "-m", "begun")
    git("checkout", "-b", "other")
    theirs = ["Ask for the version of each tool.", "Keep the commands that were run."]
    learn(theirs)
    git("checkout", "main")
    ours = ["Look at the exit code first.", "Delete what a run has left.", "Name the file in the report."]
    without_database(folder)
    learn(ours)
    git("merge", "other", "-m", "merged")
    for state in (folder, without_database(folder)):
        with open_store(state) as store:
            assert store.problems() == []
        assert len(contents(state)["lessons"]) == 3 + len(ours) + len(theirs)
    git("checkout", "other")
    assert len(contents(without_database(folder))["lessons"]) == 3 + len(theirs)
    git("merge", "main", "-m", "merged")
    learn(["Stop what was started."])
    with open_store(folder) as store:
        assert store.problems() == []
    assert len(contents(folder)["lessons"]) == 4 + len(ours) + len(theirs)
    assert contents(folder) == contents(folder, rebuilt=True)


def test_a_log_without_keys_is_read_and_goes_on_with_them(folder: Path) -> None:
    before = contents(folder)["lessons"]
    entries = read_jsonl(log_of(folder), MemoryEntry).records
    log_of(folder).write_bytes(b"".join(encode_line(msgspec.structs.replace(one, after="")) for one in entries))
    assert contents(without_database(folder))["lessons"] == before
    with open_store(folder, write=True) as store:
        add(store, draft("Look twice."), by=PERSON)
        assert store.problems() == []
    assert log_of(folder).read_bytes().splitlines()[-1].startswith(b'{"key":"')


def test_a_repair_keeps_what_can_be_read_and_the_log_as_it_was(folder: Path) -> None:
    assert repair(folder) is None
    lines = log_of(folder).read_bytes().splitlines(keepends=True)
    damaged = b"".join([lines[0].replace(b"first", b"FIRST"), b'{"op": "add", nonsense\n', *lines[2:], lines[0]])
    log_of(folder).write_bytes(damaged)
    without_database(folder)
    done = repair(folder)
    assert done is not None
    assert done.copy.read_bytes() == damaged
    assert [what.partition(":")[0] for what in done.left_out] == ["line 2", "line 5", "line 7"]
    assert done.kept == 4
    with open_store(folder) as store:
        assert store.problems() == []
        assert "FIRST" in (find(store, read_jsonl(log_of(folder), MemoryEntry).records[0].id).do or "")
    assert repair(folder) is None


def test_reading_makes_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path / "none") as store:
        assert store.connection.execute("SELECT count(*) FROM lessons").fetchone()[0] == 0
    assert not (tmp_path / "none").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_memory_that_cannot_be_written_is_read(folder: Path) -> None:
    before = contents(folder)
    folder.chmod(0o500)
    try:
        assert contents(folder) == before
    finally:
        folder.chmod(0o700)


def test_what_does_not_fit_never_reaches_the_log(folder: Path) -> None:
    before = log_of(folder).read_bytes()
    with open_store(folder, write=True) as store:
        lost = MemoryEntry(op=Operation.EDIT, id="l-none", by=PERSON, changes=LessonChanges(importance=1.0))
        with pytest.raises(UserError, match="there is no lesson l-none"):
            store.write(lambda: [lost])
    assert log_of(folder).read_bytes() == before


def test_many_writers_number_their_entries_without_gaps(tmp_path: Path) -> None:
    def write(number: int) -> None:
        with open_store(tmp_path / "m", write=True) as store, (tmp_path / f"done{number}").open("w") as done:
            for n in range(10):
                done.write(f"add {add(store, draft(f'Look at p{number}n{n} first.'), by='x').lesson.id}\n")

    writers = [FORKING.Process(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    done = [line for file in tmp_path.glob("done*") for line in file.read_text().splitlines()]
    assert len(done) == 40
    assert assert_whole(tmp_path / "m", done) == 40


def test_the_time_and_the_number_are_the_stores(folder: Path) -> None:
    entries = read_jsonl(log_of(folder), MemoryEntry).records
    assert [entry.op for entry in entries] == ["add", "add", "add", "edit", "merge", "retire"]
    assert all(entry.time.endswith("Z") and entry.by == PERSON for entry in entries)
    with open_store(folder) as store:
        absorbed = find(store, entries[1].id)
    assert (absorbed.state, absorbed.superseded_by) == (LessonState.RETIRED, entries[0].id)


def test_a_later_version_of_an_entry_is_still_read(folder: Path) -> None:
    entry = msgspec.json.decode(encode_line(MemoryEntry(op=Operation.RETIRE, id="x", by="b", seq=7, time="t")))
    kept = read_jsonl(log_of(folder), MemoryEntry).records[0].id
    with log_of(folder).open("ab") as stream:
        stream.write(encode_line({**entry, "id": kept, "mood": "good"}))
    with open_store(folder) as store:
        assert find(store, kept).state is LessonState.RETIRED


def test_the_database_is_private(folder: Path) -> None:
    assert {oct(file.stat().st_mode & 0o777) for file in folder.glob("memory.*")} == {"0o600"}
    with sqlite3.connect(MemoryFolder(folder).database) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"


@contextlib.contextmanager
def stopped_writer(folder: Path, log: bytes = b"") -> Generator[BaseProcess]:
    """A process that holds the lock, has appended this to the log, and was stopped (SIGSTOP)."""
    begun = FORKING.Event()

    def write() -> None:
        with changing(log_of(folder)), log_of(folder).open("ab") as stream:
            stream.write(log)
            stream.flush()
            begun.set()
            os.kill(os.getpid(), signal.SIGSTOP)

    writer = FORKING.Process(target=write)
    writer.start()
    assert begun.wait(60)
    try:
        yield writer
    finally:
        writer.kill()
        writer.join()


def test_a_writer_behind_a_stopped_one_says_so_once_and_waits_for_its_end(folder: Path) -> None:
    said: list[Path] = []
    with stopped_writer(folder) as writer:

        def held_up(lock: Path) -> None:
            said.append(lock)
            writer.kill()

        with open_store(folder, write=True, held_up=held_up) as store:
            add(store, draft("Look twice."), by=PERSON)
    assert said == [log_of(folder).with_suffix(".lock")]


def test_a_reader_does_not_wait_for_a_stopped_writer_and_says_when_it_is_behind(folder: Path) -> None:
    before = contents(folder)
    with stopped_writer(folder), open_store(folder) as store:
        assert not store.behind
    known = before["lessons"][0][0]
    entry = encode_line(MemoryEntry(op=Operation.RETIRE, id=known, by=PERSON, seq=7, time="t", reason="late"))
    with stopped_writer(folder, entry):
        with open_store(folder) as store:
            assert store.behind
        assert contents(folder) == before
    with open_store(folder) as store:
        assert not store.behind
        assert find(store, known).reason == "late"


def test_a_reader_makes_its_own_where_a_stopped_writer_has_no_database_yet(folder: Path) -> None:
    before = contents(folder)
    for file in folder.glob("memory.db*"):
        file.unlink()
    with stopped_writer(folder):
        assert contents(folder) == before


def test_what_fails_makes_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path / "m", write=True) as store:
        with pytest.raises(UserError):
            retire(store, "l-1", by=PERSON, reason="x")
        assert not (tmp_path / "m").exists()
        first = add(store, draft("Look twice."), by=PERSON).lesson
        assert find(store, first.id).do == "Look twice."
    assert assert_whole(tmp_path / "m", [f"add {first.id}"]) == 1
