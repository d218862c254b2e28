"""The thread behind the events: order kept, nothing lost while the disk is full, failures counted."""

import errno
import threading
from pathlib import Path
from typing import Any

import pytest

from terminalbench import json_files
from terminalbench.harbor import event_writer
from terminalbench.harbor.event_writer import EventWriter
from terminalbench.records.event import Event


def event(number: int, **detail: Any) -> Event:
    return Event(time="t", kind="note", job="job", pid=number, detail=detail)


def read(path: Path) -> list[Event]:
    return json_files.read_jsonl(path, Event).records


@pytest.fixture
def quick_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_writer, "RETRY_SEC", 0.01)


def test_order_is_kept_and_stop_waits_for_the_last(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path / "events.jsonl")
    writer.put(event(0))
    writer.start()
    for number in range(1, 500):
        writer.put(event(number))
    writer.stop()
    writer.stop()
    assert [found.pid for found in read(writer.path)] == list(range(500))


@pytest.mark.usefixtures("quick_retry")
def test_full_disk_delays_but_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full, failed = threading.Event(), threading.Event()
    full.set()

    def append(path: Path, record: Any) -> None:
        if full.is_set() and path.suffix == ".jsonl":
            failed.set()
            raise OSError(errno.ENOSPC, "No space left on device")
        json_files.append_jsonl(path, record)

    monkeypatch.setattr(event_writer, "append_jsonl", append)
    writer = EventWriter(tmp_path / "events.jsonl")
    writer.start()
    for number in range(5):
        writer.put(event(number))
    assert failed.wait(30)
    full.clear()
    writer.stop()
    found = read(writer.path)
    assert [entry.pid for entry in found] == list(range(5))
    assert found[0].detail["failures"] >= 1
    assert all("failures" not in entry.detail for entry in found[1:])
    assert "No space left" in (tmp_path / "events.jsonl.errors.log").read_text()


def test_event_that_cannot_be_written_does_not_stop_the_others(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path / "events.jsonl")
    writer.start()
    writer.put(event(1, strange=object()))
    writer.put(event(2))
    writer.stop()
    (found,) = read(writer.path)
    assert (found.pid, found.detail) == (2, {"failures": 1})


@pytest.mark.usefixtures("quick_retry")
def test_backlog_is_bounded_and_what_was_dropped_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_writer, "BACKLOG", 3)
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where a folder should be")
    writer = EventWriter(blocked / "events.jsonl")
    writer.start()
    for number in range(10):
        writer.put(event(number))
    while not writer._queue.empty():
        pass
    blocked.unlink()
    writer.put(event(10))
    writer.stop()
    found = read(writer.path)
    assert found[-1].pid == 10
    assert len(found) + found[0].detail["lost"] == 11


def test_failures_of_others_are_counted_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = EventWriter(tmp_path / "events.jsonl")
    for _ in range(30):
        writer.failed("hook", RuntimeError("token=abcdef123"))
    writer.start()
    writer.put(event(1))
    writer.stop()
    assert read(writer.path)[0].detail == {"failures": 30}
    said = capsys.readouterr().err
    assert "abcdef123" not in said
    assert said.count("\n") == 20, "the same complaint is not repeated for ever"
