import json
import os
import shutil
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from index.batches import hold_a_batch, labelled, old, outcomes
from support.results import STAMP, make_plan, make_trial
from terminalbench.experiments.batch import Batch, allocate, latest
from terminalbench.index import scan
from terminalbench.index.places import profile_of
from terminalbench.index.queries import trials_named, view_batch
from terminalbench.index.results import export_index, list_batches, open_results
from terminalbench.index.scan import ScanReport, scan_all, scan_batch
from terminalbench.index.sql import ask
from terminalbench.index.store import FILE_NAME, open_index
from terminalbench.records.trial import Outcome


def test_only_what_changed_is_read_again(batch: Batch) -> None:
    for name in ("a__1", "a__2", "b__1"):
        make_trial(batch, name)
    assert scan_batch(batch) == ScanReport(seen=3, read=3)
    assert scan_batch(batch) == ScanReport(seen=3, read=0)
    make_trial(batch, "a__1", reward=0.25)
    assert scan_batch(batch) == ScanReport(seen=3, read=1)
    (batch.runs / f"{STAMP}__p" / "a__1" / "result.json").unlink()
    (batch.runs / f"{STAMP}__p" / "a__1").rmdir()
    assert scan_batch(batch) == ScanReport(seen=2, read=0, removed=1)


def test_the_index_comes_back(batch: Batch) -> None:
    make_trial(batch, "a__1", cost=0.5)
    root = batch.folder.parent.parent
    scan_all(root)
    before = list_batches(root)
    (root / FILE_NAME).unlink()
    scan_all(root)
    assert list_batches(root) == before
    assert scan_all(root, rebuild=True).read == 1
    assert before[0]["cost_usd"] == 0.5


def test_a_batch_that_is_gone_leaves_the_index(batch: Batch) -> None:
    make_trial(batch, "a__1")
    root = batch.folder.parent.parent
    make_trial(allocate(root, "s"), "a__1")
    scan_all(root)
    batch.folder.rename(root.parent / "away")
    assert scan_all(root).removed == 1
    assert [row["batch"] for row in list_batches(root)] == ["s/1"]
    before = (root / FILE_NAME).read_bytes()
    (root / "s" / "1").rename(root.parent / "away too")
    scan_all(root)
    assert list_batches(root) == []
    assert (root / FILE_NAME).read_bytes() == before, "a folder without a batch is not written"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"config": 3}', b"[" * 5000])
def test_what_cannot_be_read_is_counted(batch: Batch, content: bytes) -> None:
    make_trial(batch, "a__1")
    (make_trial(batch, "b__1") / "result.json").write_bytes(content)
    report = scan_batch(batch)
    assert len(report.unreadable) == 1
    assert "b__1" in report.unreadable[0]
    view = view_batch(batch)
    cell = next(c for c in view.cells if (c.profile, c.task.id, c.attempt) == ("p", "a", 1))
    assert cell.outcome == Outcome.PASSED


def test_the_export_has_relative_paths_and_every_cell(batch: Batch) -> None:
    make_trial(batch, "a__1")
    scan_batch(batch)
    export_index(batch, view_batch(batch))
    runs = json.loads(batch.index_json.read_text())["runs"]
    assert len(runs) == 8
    first = runs[0]
    assert (first["task_id"], first["agent_key"], first["success"], first["resolved"], first["accuracy"]) == (
        "a",
        "p",
        True,
        True,
        1.0,
    )
    assert first["elapsed_sec"] == 60.0
    assert (batch.folder / first["results_json"]).is_file()
    assert runs[-1]["success"] is None


def test_finding_trials_by_the_beginning_of_their_name(batch: Batch) -> None:
    for name in ("a__xy", "a__xz", "ab__xy"):
        make_trial(batch, name)
    root = batch.folder.parent.parent
    scan_all(root)
    assert [row.name for _, row in trials_named(root, "a__x")] == ["a__xy", "a__xz"]
    assert [row.name for _, row in trials_named(root, "a_")] == ["a__xy", "a__xz"]
    assert trials_named(root, "%") == []


def test_the_latest_batch_is_the_latest_with_data(tmp_path: Path) -> None:
    assert latest(tmp_path, "s") is None
    first, empty = allocate(tmp_path, "s"), allocate(tmp_path, "s")
    make_plan(first)
    make_trial(first, "a__1")
    assert (first.number, empty.number) == (0, 1)
    assert latest(tmp_path, "s") == first


def test_a_file_that_is_no_database_is_set_aside(tmp_path: Path) -> None:
    hold_a_batch(tmp_path)
    (tmp_path / FILE_NAME).write_bytes(b"not a database at all, but long enough to look like one" * 40)
    with open_index(tmp_path) as connection:
        assert connection.execute("SELECT COUNT(*) FROM trials").fetchone()[0] == 0
    assert (tmp_path / f"{FILE_NAME}.damaged").exists()


def test_a_folder_without_a_batch_is_not_written_and_gets_its_index_with_the_first(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    for path, data in (("index.db", b"another program's"), ("a/b/c", b"")):
        (foreign / path).parent.mkdir(parents=True, exist_ok=True)
        (foreign / path).write_bytes(data)
    missing = tmp_path / "missing"
    for root in (foreign, missing):
        assert scan_all(root, rebuild=True) == scan_all(root, in_root=True) == ScanReport()
        assert list_batches(root) == []
        assert ask(root, "SELECT count(*) FROM trials").rows == [(0,)]
    assert (foreign / "index.db").read_bytes() == b"another program's"
    assert sorted(path.name for path in foreign.rglob("*")) == ["a", "b", "c", "index.db"]
    assert not missing.exists()
    make_trial(allocate(missing, "s"), "a__1")
    assert scan_all(missing).read == 1
    assert [row["batch"] for row in list_batches(missing)] == ["s/0"]
    assert (missing / FILE_NAME).is_file()


def test_two_scans_at_once(batch: Batch) -> None:
    for number in range(60):
        make_trial(batch, f"a__{number}")
    root = batch.folder.parent.parent
    with ThreadPoolExecutor(4) as pool:
        reports = [future.result() for future in [pool.submit(scan_all, root) for _ in range(4)]]
    assert {report.seen for report in reports} == {60}
    with sqlite3.connect(root / FILE_NAME) as connection:
        assert connection.execute("SELECT COUNT(*) FROM trials").fetchone()[0] == 60


@pytest.mark.parametrize(("job", "profile"), [("2026-01-01__10-00-00__a__b", "a__b"), ("other", None), ("a__b", None)])
def test_the_profile_of_a_job(job: str, profile: str | None) -> None:
    assert profile_of(job) == profile


def test_what_cannot_be_read_is_named_every_time(batch: Batch) -> None:
    (make_trial(batch, "a__1") / "result.json").write_text("{")
    for _ in range(2):
        assert len(scan_batch(batch).unreadable) == 1
    assert list_batches(batch.folder.parent.parent)[0]["not_measured"] == 8


def test_a_plan_that_cannot_be_read_hides_nothing(batch: Batch) -> None:
    make_trial(batch, "a__1")
    batch.plan_json.write_text('{"slug": 3')
    root = batch.folder.parent.parent
    for rebuild in (False, True):
        assert any("plan.json" in problem for problem in scan_all(root, rebuild=rebuild).unreadable)
    listed = list_batches(root)[0]
    assert (listed["batch"], listed["name"], listed["passed"], listed["planned"]) == (
        "s/0",
        "plan.json cannot be read",
        1,
        None,
    )


def test_a_folder_of_foreign_harbor_jobs(tmp_path: Path) -> None:
    ours = allocate(tmp_path / "results", "s")
    make_plan(ours)
    make_trial(ours, "a__1")
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    (ours.runs / f"{STAMP}__p").rename(jobs / "my-job")
    for name in ("config.json", "result.json"):
        (jobs / "my-job" / name).write_text("{}")
    assert scan_all(jobs).seen == 1
    assert [(b["name"], b["passed"]) for b in list_batches(jobs)] == [("a folder of Harbor jobs", 1)]
    assert [row.task for _, row in trials_named(jobs, "a__")] == ["a"]
    assert [b["passed"] for b in open_results(jobs / "my-job").batches()] == [1], "a job means the folder it lies in"


def test_a_locked_index_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from terminalbench.errors import TbenchError
    from terminalbench.index import database

    hold_a_batch(tmp_path)
    with open_index(tmp_path):
        pass
    real = sqlite3.connect

    def impatient(path: Path, **options: Any) -> sqlite3.Connection:
        options["timeout"] = 0.1
        return real(path, **options)

    monkeypatch.setattr(database.sqlite3, "connect", impatient)
    holder = real(tmp_path / FILE_NAME, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    try:
        with open_index(tmp_path) as connection:  # reading goes on
            assert connection.execute("SELECT count(*) FROM trials").fetchone()[0] == 0
            with pytest.raises(TbenchError, match="locked"), database.transaction(connection):
                pass
    finally:
        holder.close()
    assert not (tmp_path / f"{FILE_NAME}.damaged").exists()


def test_a_trial_without_a_result_is_read_again_when_it_goes_on(batch: Batch) -> None:
    folder = make_trial(batch, "a__1")
    (folder / "result.json").unlink()
    (folder / "config.json").write_text("{}")
    scan_batch(batch)
    assert scan_batch(batch).read == 0
    (folder / "agent").mkdir()
    (folder / "agent" / "log.txt").write_text("working")
    assert scan_batch(batch).read == 1, "its cost may have grown"
    (folder / "held.json").write_text('{"reason": "the budget is used up"}')
    assert scan_batch(batch).read == 1
    assert outcomes(batch)["p", "a", 1] == Outcome.NOT_RUN


def test_a_batch_that_ended_is_passed_over_until_something_of_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = labelled(tmp_path)
    old(batch)
    assert scan_all(tmp_path) == ScanReport(seen=2, read=2)
    with monkeypatch.context() as closed:
        closed.setattr(scan, "_trial_folders", None)
        closed.setattr(scan, "read_json", None)
        assert scan_all(tmp_path) == ScanReport(seen=2)
    make_trial(batch, "a__2", second=3)  # as a resume does, or a person
    assert scan_all(tmp_path) == ScanReport(seen=3, read=1)
    assert scan_all(tmp_path) == ScanReport(seen=3)
    shutil.rmtree(batch.runs / f"{STAMP}__p" / "a__2")
    assert scan_all(tmp_path) == ScanReport(seen=2, removed=1)
    old(batch)
    scan_all(tmp_path)
    make_trial(batch, "a__1", reward=0.0)
    os.utime(batch.runs / f"{STAMP}__p", (1_700_000_000, 1_700_000_000))
    assert scan_all(tmp_path, thorough=True).read == 1, "a result that was edited in place"
    assert list_batches(tmp_path)[0]["failed"] == 1


def test_an_export_is_written_only_when_it_changes_and_is_no_change_of_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tbench
) -> None:
    batch = labelled(tmp_path)
    old(batch)
    tbench("index", "--results", tmp_path)
    written = batch.index_json.stat().st_ino
    with monkeypatch.context() as closed:
        closed.setattr(scan, "_trial_folders", None)
        assert scan_all(tmp_path) == ScanReport(seen=2)
    tbench("index", "--results", tmp_path)
    assert batch.index_json.stat().st_ino == written
    make_trial(batch, "a__2", second=3)
    tbench("index", "--results", tmp_path)
    assert batch.index_json.stat().st_ino != written
    assert len(json.loads(batch.index_json.read_text())["runs"]) > 2


@pytest.mark.parametrize("half", [None, b"{"])
def test_a_batch_that_may_go_on_is_looked_at_every_time(tmp_path: Path, half: bytes | None) -> None:
    batch = labelled(tmp_path)
    result = batch.runs / f"{STAMP}__p" / "a__1" / "result.json"
    whole = result.read_bytes()
    result.unlink()
    if half is not None:
        result.write_bytes(half)
    (result.parent / "config.json").write_text("{}")
    old(batch)
    scan_all(tmp_path)
    result.write_bytes(whole)
    os.utime(result.parent, (1_700_000_000, 1_700_000_000))
    assert scan_all(tmp_path).read == 1


def test_opening_an_index_again_leaves_the_locks_that_this_process_holds(tmp_path: Path) -> None:
    """To open and close the file beside SQLite would drop them: another process takes the log away, and it is lost."""
    hold_a_batch(tmp_path)
    with open_index(tmp_path) as connection:
        connection.execute("CREATE TABLE t (x)")
        with open_index(tmp_path):
            pass
        other = f"import sqlite3; c = sqlite3.connect({str(tmp_path / FILE_NAME)!r}); c.execute('SELECT * FROM t'); c.close()"
        subprocess.run([sys.executable, "-c", other], check=True, timeout=600)
        assert (tmp_path / f"{FILE_NAME}-wal").exists()
