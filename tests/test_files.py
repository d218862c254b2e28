import errno
import fcntl
import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terminalbench import files, json_files, locks
from terminalbench.errors import TbenchError
from terminalbench.records.trial import TaskRef, Usage

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def test_a_written_file_reads_back_and_leaves_no_temporary(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.json"
    json_files.write_json(path, {"task": TaskRef("a", "d"), "path": Path("x")})
    assert json_files.read_json(path) == {"task": {"id": "a", "dataset": "d"}, "path": "x"}
    assert [p.name for p in path.parent.iterdir()] == ["a.json"]


def test_the_old_file_stays_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    json_files.write_json(path, 1)

    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        json_files.write_json(path, 2)
    assert path.read_text() == "1\n"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize(("shared", "file", "folder"), [("", 0o600, 0o700), ("0", 0o600, 0o700), ("1", 0o640, 0o750)])
def test_what_is_new_is_this_users_alone_unless_it_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: str, file: int, folder: int
) -> None:
    monkeypatch.setenv("TERMINALBENCH_SHARED", shared)
    (tmp_path / "old").write_text("x")
    (tmp_path / "old").chmod(0o664)
    before = os.umask(0o027)
    try:
        files.write_text(tmp_path / "a" / "b" / "text", "x")
        json_files.append_jsonl(tmp_path / "a" / "b" / "lines", {})
        files.write_text(tmp_path / "old", "y")
        files.write_project_file(tmp_path / "tasks" / "project", "x")
        with locks.lock(tmp_path / "a" / "b" / "lock"):
            made = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    finally:
        os.umask(before)
    assert made == {
        "a": folder, "b": folder, "text": file, "lines": file, "lock": file, "old": 0o664, "project": 0o640,
        "tasks": 0o750,
    }  # fmt: skip


def test_many_threads_that_write_leave_the_umask_alone(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda n: json_files.write_json(tmp_path / f"{n % 7}.json", n), range(700)))
        left = os.umask(0o027)
    finally:
        os.umask(before)
    assert left == 0o027
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_a_corrupt_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'{"a": ')
    with pytest.raises(TbenchError, match="a.json: not readable as JSON"):
        json_files.read_json(path)


@given(records=st.lists(json_values, max_size=6), cut=st.integers(1, 30), more=json_values)
def test_jsonl_survives_a_torn_last_line(
    tmp_path_factory: pytest.TempPathFactory, records: list, cut: int, more: object
) -> None:
    path = tmp_path_factory.mktemp("jsonl") / "e.jsonl"
    for record in [*records, {"torn": "line"}]:
        json_files.append_jsonl(path, record)
    whole = path.read_bytes()
    last_line = len(whole) - whole.rstrip(b"\n").rfind(b"\n") - 1
    path.write_bytes(whole[: len(whole) - min(cut, last_line - 1)])
    torn_newline_only = cut == 1

    assert json_files.read_jsonl(path).records == records
    json_files.append_jsonl(path, more)
    after = json_files.read_jsonl(path)
    assert after.records == ([*records, {"torn": "line"}, more] if torn_newline_only else [*records, more])
    assert len(after.bad) == (0 if torn_newline_only else 1)


def test_tail_gives_each_line_once_and_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    assert json_files.tail_jsonl(path, 0).records == []
    json_files.append_jsonl(path, 1)
    first = json_files.tail_jsonl(path, 0)
    assert first.records == [1]
    with path.open("ab") as stream:
        stream.write(b'{"half": ')
    assert json_files.tail_jsonl(path, first.offset).records == []
    with path.open("ab") as stream:
        stream.write(b"1}\n")
    second = json_files.tail_jsonl(path, first.offset)
    assert second.records == [{"half": 1}]
    path.write_bytes(b"7\n")
    assert json_files.tail_jsonl(path, second.offset).records == [7]


def _append_many(path: Path, who: int, start: Barrier) -> None:
    start.wait(60)
    for number in range(1000):
        json_files.append_jsonl(path, {"who": who, "number": number, "pad": "x" * (number % 90)})


def test_processes_that_append_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    context = multiprocessing.get_context("fork")
    start = context.Barrier(3)
    workers = [context.Process(target=_append_many, args=(path, who, start)) for who in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    found = json_files.read_jsonl(path)
    assert not found.bad
    for who in range(3):
        assert [r["number"] for r in found.records if r["who"] == who] == list(range(1000))


def test_a_lock_names_its_owner_and_is_free_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locks.lock(path, "tbench run"):
        with pytest.raises(locks.LockHeld) as caught, locks.lock(path, "second"):
            pass
        assert caught.value.owner is not None
        assert caught.value.owner.pid == os.getpid()
        assert "tbench run" in str(caught.value)
    with locks.lock(path, "third") as owner:
        assert owner.what == "third"


def test_a_lock_that_its_holder_is_letting_go_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The holder has taken its name out, and is about to close the file."""
    path = tmp_path / "lock"
    holder = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(holder, fcntl.LOCK_EX)
    monkeypatch.setattr(locks.time, "sleep", lambda _: os.close(holder))
    with locks.lock(path, "next") as owner:
        assert owner.what == "next"


def test_a_holder_without_a_name_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"
    monkeypatch.setattr(locks, "_NAME_SEC", 0.0)
    with path.open("w") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(locks.LockHeld, match="in use by another process"), locks.lock(path, "next"):
            pass


def _hold_and_die(path: Path, ready: Event) -> None:
    with locks.lock(path, "doomed"):
        ready.set()
        os.kill(os.getpid(), 9)


def test_a_lock_that_becomes_free_while_its_owner_is_looked_for_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the other one is just ending: it has taken its name out, and lets go."""
    path = tmp_path / "lock"
    other = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(other, fcntl.LOCK_EX)
    monkeypatch.setattr(locks.time, "sleep", lambda _seconds: fcntl.flock(other, fcntl.LOCK_UN))
    with locks.lock(path, "late") as owner:
        assert locks.lock_owner(path) == owner
    os.close(other)


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    worker = context.Process(target=_hold_and_die, args=(path, ready))
    worker.start()
    assert ready.wait(60)
    worker.join(60)
    stale = locks.lock_owner(path)
    assert stale is not None
    assert stale.what == "doomed"
    with locks.lock(path, "heir") as owner:
        assert owner.pid == os.getpid()


def test_unknown_stays_unknown_on_disk(tmp_path: Path) -> None:
    json_files.write_json(tmp_path / "u.json", Usage(input_tokens=0))
    read = json_files.read_json(tmp_path / "u.json", Usage)
    assert (read.input_tokens, read.cost_usd) == (0, None)


def test_a_lock_that_was_given_up_by_an_error_names_nobody(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locks.lock(tmp_path / "l"):
        raise ZeroDivisionError
    assert locks.lock_owner(tmp_path / "l") is None


def test_the_end_of_a_plain_file(tmp_path: Path) -> None:
    log, link = tmp_path / "log", tmp_path / "link"
    log.write_bytes(b"first\n\xffast")
    link.symlink_to(log)
    assert files.tail_plain(log, 4) == "\N{REPLACEMENT CHARACTER}ast"
    assert files.tail_plain(log, 100) == "first\n\N{REPLACEMENT CHARACTER}ast"
    assert files.tail_plain(link, 4) is None
    assert files.tail_plain(tmp_path / "none", 4) is None
