"""One recorded run, shown by the run line, `watch`, `status` and the dashboard: all say the same numbers.

tests/data/live holds the beginning of a real run of 36 trials of an oracle and three simulated agents: trials were
retried, one profile was paused, one was cancelled by an order, and a Harbor process was killed.
"""

import json
import re
import shutil
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from terminalbench.dashboard.answers import answer
from terminalbench.dashboard.site import Site
from terminalbench.experiments.batch import Batch
from terminalbench.files import write_bytes
from terminalbench.index.scan import scan_all
from terminalbench.json_files import read_jsonl
from terminalbench.live.feed import Feed
from terminalbench.live.forecast import eta_sec, run_line
from terminalbench.locks import lock
from terminalbench.records.event import Event, EventKind, WaitKind
from terminalbench.watch.tables import Frame
from terminalbench.watch.view import render

RECORDED = Path(__file__).parents[1] / "data" / "live"
NOW = datetime(2026, 11, 16, 1, 2, 43, tzinfo=UTC).timestamp()


@dataclass(frozen=True)
class Numbers:
    done: int
    planned: int
    passed: int
    failed: int
    running: int
    waiting: int
    spend: str
    left_sec: float


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    batch = Batch(tmp_path / "results" / "recorded" / "0")
    batch.runs.mkdir(parents=True)
    for name in ("plan.json", "events.jsonl"):
        shutil.copy(RECORDED / name, batch.folder)
    return batch


def number(text: str, what: str) -> int:
    """The number before a word."""
    found = re.search(rf"(\d+) {what}", text)
    assert found is not None, (what, text)
    return int(found[1])


def of(text: str, pattern: str = r"(\d+)/(\d+)") -> tuple[int, int]:
    """The two numbers of "13/36"."""
    found = re.search(pattern, text)
    assert found is not None, text
    return int(found[1]), int(found[2])


def money(text: str) -> str:
    found = re.search(r"\$[\d.,]+(?: \+ \d+ unknown|\+\d+\?)?", text)
    assert found is not None, text
    return re.sub(r"\+(\d+)\?", r" + \1 unknown", found[0])


def time_left(text: str) -> float:
    """Seconds, of "73 s", "1.2 min" or "1:13"."""
    minutes = re.search(r"(\d+):(\d\d)", text)
    if minutes is not None:
        return 60 * int(minutes[1]) + int(minutes[2])
    found = re.search(r"([\d.]+) (s|min)", text)
    assert found is not None, text
    return float(found[1]) * {"s": 1, "min": 60}[found[2]]


def from_run_line(line: str) -> Numbers:
    counts = (number(line, what) for what in ("passed", "failed", "running", "waiting"))
    return Numbers(*of(line), *counts, money(line), time_left(line.split("about ")[1]))


def from_view(lines: list[str]) -> Numbers:
    title, progress = lines[:2]
    total = next(line.split() for line in lines if line.startswith("total"))
    running, waiting = number(progress, "running"), number(progress, "waiting")
    left = time_left(title.split("about ")[1])
    assert of(progress) == of(total[1])
    return Numbers(*of(progress), int(total[2]), int(total[3]), running, waiting, money(" ".join(total[4:])), left)


def from_status(text: str) -> Numbers:
    row = text.splitlines()[1]
    counts = (number(row, what) for what in ("passed", "failed", "running", "waiting"))
    done, planned = of(row, r"(\d+)/(\d+),")
    return Numbers(done, planned, *counts, money(row), time_left(row.split("unknown")[1]))


def from_dashboard(page: str, document: dict) -> Numbers:
    said = re.sub(r"<[^>]+>", "", page.split('id="live"')[1].split("</p>")[0])
    outcomes = sum((Counter(profile["outcomes"]) for profile in document["live"]["profiles"]), Counter())
    counts = (outcomes["passed"], outcomes["failed"], number(said, "running"), number(said, "waiting"))
    return Numbers(*of(said, r"(\d+) of (\d+)"), *counts, money(said), document["left_sec"])


def test_the_recording_holds_what_can_happen_to_a_trial(batch: Batch) -> None:
    events = read_jsonl(batch.events_jsonl, Event).records
    assert {event.kind for event in events} >= {*EventKind} - {EventKind.NOTE, EventKind.RESUMED}
    assert any(event.detail.get("retried") for event in events)
    causes = {event.detail["cause"] for event in events if event.kind == EventKind.TRIAL_WAITING}
    assert causes == {WaitKind.RETRY, WaitKind.PAUSED}
    feed = Feed(batch)
    feed.read()
    state = feed.state
    assert (len(state.running), len(state.waiting), len(state.held), len(state.alerts.standing)) == (4, 1, 1, 1)


def test_run_line_view_status_and_dashboard_say_the_same(batch: Batch, tbench, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = Feed(batch)
    feed.read()
    state = feed.state
    scan_all(batch.folder.parents[1])
    site = Site(batch.folder.parents[1], lambda: datetime.fromtimestamp(NOW, UTC))
    site.live = ("recorded/0",)
    page = (answer(site, "batches/recorded/0/", {}).body or b"").decode()
    document = json.loads(answer(site, "batches/recorded/0/data.json", {}).body or b"")
    monkeypatch.setattr("terminalbench.live.status.time", SimpleNamespace(time=lambda: NOW))
    with lock(batch.lock, "test"):
        status = tbench("status", "--results", batch.folder.parents[1]).out
        (listed,) = json.loads(tbench("status", "--results", batch.folder.parents[1], "--json").out)
    shown = {
        "run line": from_run_line(run_line(state, NOW)),
        "watch": from_view([line.plain for line in render(Frame(feed, NOW), 200, 50)]),
        "status": from_status(status),
        "dashboard": from_dashboard(page, document),
    }
    left = eta_sec(state, NOW)
    assert left is not None
    expected = Numbers(13, 36, 9, 4, 4, 18, "$1.81 + 3 unknown", left)
    for place, numbers in shown.items():
        assert numbers.left_sec == pytest.approx(left, rel=0.05), place
        assert vars(numbers) | {"left_sec": left} == vars(expected), place
    assert (listed["ended"], listed["planned"], listed["running"], listed["to_start"]) == (13, 36, 4, 18)
    assert (listed["cost_unknown"], listed["left_sec"]) == (3, pytest.approx(left))
    for text in (run_line(state, NOW), status, page):
        assert "waiting: paused: waiting for quota" in text
        assert "dead_child" in text


def test_the_notes_of_an_older_version_give_the_same_state(batch: Batch) -> None:
    """Before a died process was a kind of its own, it was a note with the exit code."""
    now, before = Feed(batch), Feed(batch)
    now.read()
    write_bytes(batch.events_jsonl, batch.events_jsonl.read_bytes().replace(b'"job_died"', b'"note"'))
    before.read()
    assert [trial.key for trial in now.state.running] == [trial.key for trial in before.state.running]
    assert now.state.total == before.state.total
    assert (now.state.shut, now.state.to_start) == (before.state.shut, before.state.to_start)
