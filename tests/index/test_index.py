import json
import os
import shutil
import sqlite3
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.results import STAMP, make_plan, make_trial
from terminalbench.analytics.compare import compare_views
from terminalbench.experiments.batch import Batch, allocate, latest
from terminalbench.experiments.plan import Exclusion, Plan, ProfileRecord
from terminalbench.harbor.read import READER
from terminalbench.harbor.retry_queue import set_aside
from terminalbench.index import places, scan, totals
from terminalbench.index.places import profile_of
from terminalbench.index.queries import trial_rows, trials_named, view_batch
from terminalbench.index.results import export_index, list_batches, open_results
from terminalbench.index.scan import ScanReport, scan_all, scan_batch
from terminalbench.index.sql import ask
from terminalbench.index.store import FILE_NAME, MIGRATIONS, open_index
from terminalbench.json_files import read_json, write_json
from terminalbench.lab.trial import FoundTrial
from terminalbench.records.trial import Outcome, TaskRef
from terminalbench.report.text import summary
from terminalbench.report.trial import ShownSteps, trial_text

LABELS = '{"role":"baseline","run":"night-1"}'
FACTS = [("a__1", "id-p", "first", LABELS), ("b__1", "id-p", None, LABELS)]


def labelled(root: Path) -> Batch:
    """A batch with labels, of two tasks; one of them belongs to a family."""
    batch = allocate(root, "s")
    plan = make_plan(batch, ("p",), "ab", 1, labels={"run": "night-1", "role": "baseline"})
    (job,) = plan.jobs
    first = msgspec.structs.replace(job.tasks[0], ref=TaskRef("a", "d", "first"))
    plan = msgspec.structs.replace(plan, jobs=(msgspec.structs.replace(job, tasks=(first, job.tasks[1])),))
    write_json(batch.plan_json, plan)
    for task in "ab":
        make_trial(batch, f"{task}__1")
    return batch


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    found = allocate(tmp_path / "results", "s")
    make_plan(found, ("p", "q"), "ab", 2)
    return found


def outcomes(batch: Batch) -> dict[tuple[str, str, int], str]:
    scan_batch(batch)
    return {(c.profile, c.task.id, c.attempt): c.outcome for c in view_batch(batch).cells}


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


def test_every_planned_cell_has_a_state(batch: Batch) -> None:
    make_trial(batch, "a__1")
    make_trial(batch, "a__2", reward=0.0, second=1)
    make_trial(batch, "b__1", reward=None, error="RuntimeError")
    make_trial(batch, "b__2", reward=None, error="CancelledError")
    assert outcomes(batch) == {
        ("p", "a", 1): "passed",
        ("p", "a", 2): "failed",
        ("p", "b", 1): "errored",
        ("p", "b", 2): "cancelled",
        ("q", "a", 1): "not_run",
        ("q", "a", 2): "not_run",
        ("q", "b", 1): "not_run",
        ("q", "b", 2): "not_run",
    }


def test_a_trial_run_again_counts_once_and_costs_twice(batch: Batch) -> None:
    make_trial(batch, "a__0", reward=None, error="CancelledError", cost=1.0)
    make_trial(batch, "a__1", second=1, job=f"{STAMP}-w2__p", cost=1.0)
    make_trial(batch, "a__2", second=2, job=f"{STAMP}-w2__p", cost=1.0)
    assert outcomes(batch)["p", "a", 1] == outcomes(batch)["p", "a", 2] == "passed"
    view = view_batch(batch)
    assert [row.name for row in view.superseded] == ["a__0"]
    assert sum(row.usage.cost_usd or 0 for row in view.rows()) == 3.0


def standing(batch: Batch) -> dict[str, tuple[int | None, int | None]]:
    """What the index says of each trial of profile p: whether it counts, and as which attempt."""
    scan_batch(batch)
    found = ask(batch.folder.parent.parent, "SELECT trial, counts, attempt FROM trials WHERE profile = 'p'")
    return {name: (counts, attempt) for name, counts, attempt in found.rows}


def test_the_index_says_which_trial_counts(batch: Batch) -> None:
    make_trial(batch, "a__1", reward=None, error="RuntimeError", cost=1.0)
    make_trial(batch, "a__2", second=1, cost=1.0)
    assert standing(batch) == {"a__1": (1, 2), "a__2": (1, 1)}
    make_trial(batch, "a__3", reward=0.0, second=2, job=f"{STAMP}-w2__p", cost=1.0)
    assert standing(batch) == {"a__1": (0, None), "a__2": (1, 1), "a__3": (1, 2)}
    plan = read_json(batch.plan_json, Plan)
    write_json(batch.plan_json, msgspec.structs.replace(plan, superseded=(f"{STAMP}__p/a__1",)))
    shutil.rmtree(batch.runs / f"{STAMP}-w2__p" / "a__3")
    assert standing(batch) == {"a__1": (0, None), "a__2": (1, 1)}, "a new plan is enough"
    set_aside(make_trial(batch, "b__1", reward=None, error="RuntimeError"), batch.superseded, 1)
    shutil.rmtree(batch.runs / f"{STAMP}__p" / "b__1")
    make_trial(batch, "b__1", second=3)
    assert {name: found for name, found in standing(batch).items() if name[0] == "b"} == {
        "b__1": (1, 1),
        "b__1-try1": (0, None),
    }
    counts = {row.name: row.run_again for row in trial_rows(batch.folder.parent.parent, "s/0")}
    assert counts == {"a__1": True, "a__2": False, "b__1": False, "b__1-try1": True}


def test_of_an_attempt_that_was_run_again_the_first_verdict_counts(batch: Batch) -> None:
    make_trial(batch, "a__1", reward=0.0, attempt=1)
    make_trial(batch, "a__2", reward=0.0, second=1, attempt=2)
    make_trial(batch, "a__3", second=2, job=f"{STAMP}-w2__p", attempt=1)
    plan = read_json(batch.plan_json, Plan)
    write_json(batch.plan_json, msgspec.structs.replace(plan, superseded=(f"{STAMP}__p/a__1",)))
    assert standing(batch) == {"a__1": (1, 1), "a__2": (1, 2), "a__3": (0, None)}, "though it was to be run again"
    view = view_batch(batch)
    assert view.repeats() == {("p", TaskRef("a", "d"), 1): Outcome.PASSED}
    set_aside(make_trial(batch, "b__1", reward=0.0, attempt=1), batch.superseded, 1)
    shutil.rmtree(batch.runs / f"{STAMP}__p" / "b__1")
    make_trial(batch, "b__1", second=3, attempt=1)
    assert standing(batch)["b__1-try1"] == (1, 1), "nor does it help that an earlier version let Harbor try again"
    assert standing(batch)["b__1"] == (0, None)
    assert {row.name for row in trial_rows(batch.folder.parent.parent, "s/0") if row.run_again} == {"a__3", "b__1"}
    found = [FoundTrial(batch, "s/0", row) for row in trial_rows(batch.folder.parent.parent, "s/0")]
    shown = {one.row.name: trial_text(one.folder, "s/0", one.row, ShownSteps(later=one.later)) for one in found}
    assert "  repeated  1 time after this verdict, which counts; the last try passed\n" in shown["a__1"]
    assert "  superseded yes: an earlier try of its attempt has the verdict that counts;" in shown["a__3"]
    assert "repeated" not in shown["a__2"]
    text = summary(view_batch(batch))
    assert "2 trials were run again after a verdict: the first counts; by the last 2 passed" in text
    told = compare_views([view_batch(batch)]).warnings
    assert (
        "p: 2 trials were run again after a verdict; the first verdict counts (pass rate 0.0 %), by the last it would be 75.0 %"
        in told
    )


def test_an_index_of_an_earlier_version_is_counted_anew(batch: Batch) -> None:
    make_trial(batch, "a__1")
    root = batch.folder.parent.parent
    scan_batch(batch)
    with sqlite3.connect(root / FILE_NAME) as connection:
        connection.execute("ALTER TABLE trials DROP COLUMN counts")
        connection.execute("ALTER TABLE trials DROP COLUMN attempt")
        connection.execute("DELETE FROM migrations WHERE name = '004_counts'")
        connection.execute("UPDATE summaries SET passed = 7")
    assert standing(batch) == {"a__1": (1, 1)}
    assert list_batches(root)[0]["passed"] == 1


def test_what_was_doubtful_by_an_earlier_rule_is_read_anew(batch: Batch) -> None:
    make_trial(batch, "a__1")
    root = batch.folder.parent.parent
    scan_batch(batch)
    with sqlite3.connect(root / FILE_NAME) as connection:
        connection.execute("UPDATE trials SET suspect = 'implausibly_short'")
        connection.execute("DELETE FROM migrations WHERE name = '016_untold'")
    scan_batch(batch)
    with sqlite3.connect(root / FILE_NAME) as connection:
        assert connection.execute("SELECT suspect FROM trials").fetchone()[0] is None


def test_a_mended_rule_reaches_what_is_in_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the results nor the files of the batch have changed."""
    batch = labelled(tmp_path)
    old(batch)
    assert scan_all(tmp_path) == ScanReport(seen=2, read=2)
    stamps = "SELECT trial, stamp, reader FROM trials ORDER BY trial"
    before = ask(tmp_path, stamps).rows
    assert {row[-1] for row in before} == {READER}
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute("UPDATE trials SET outcome = 'failed', reader = 0 WHERE trial = 'a__1'")
        connection.execute("UPDATE batches SET stamp = replace(stamp, ?, 'reader:0')", (f"reader:{READER}",))
    assert scan_all(tmp_path) == ScanReport(seen=2, read=1), "the one that other rules decided"
    assert ask(tmp_path, "SELECT DISTINCT outcome FROM trials").rows == [("passed",)]
    assert ask(tmp_path, stamps).rows == before, "what was found in it holds: its result is the same"
    for module in (scan, places):
        monkeypatch.setattr(module, "READER", READER + 1)
    assert scan_all(tmp_path) == ScanReport(seen=2, read=2)
    assert scan_all(tmp_path) == ScanReport(seen=2)


def test_counts_that_a_scan_did_not_get_to_are_made_by_the_next(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    make_trial(batch, "a__1")
    scan_batch(batch)
    make_trial(batch, "a__2", second=1)
    with monkeypatch.context() as cut_off:
        cut_off.setattr(scan, "summarize", lambda *_: None)
        scan_batch(batch)
    assert list_batches(batch.folder.parent.parent)[0]["passed"] == 1
    assert standing(batch) == {"a__1": (1, 1), "a__2": (1, 2)}
    assert list_batches(batch.folder.parent.parent)[0]["passed"] == 2


def test_older_counts_never_take_the_place_of_newer_ones(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process takes in a trial while this one counts: it has to wait, and counts afterwards."""
    reading = totals.batch_rows
    others: list[Future[ScanReport]] = []

    def slow(connection: sqlite3.Connection, key: str) -> list:
        rows = reading(connection, key)
        if not others:
            make_trial(batch, "a__2", second=1)
            others.append(pool.submit(scan_batch, batch))
            wait(others, timeout=0.5)
        return rows

    monkeypatch.setattr(totals, "batch_rows", slow)
    make_trial(batch, "a__1")
    with ThreadPoolExecutor(1) as pool:
        scan_batch(batch)
        assert others[0].result().seen == 2
    assert list_batches(batch.folder.parent.parent)[0]["passed"] == 2


def test_a_list_says_what_is_unknown_and_what_is_free(batch: Batch) -> None:
    make_trial(batch, "a__1", cost=0.5)
    make_trial(batch, "a__2")
    make_trial(batch, "a__1", profile="q")
    plan = read_json(batch.plan_json, Plan)
    record = ProfileRecord("q", "id-q", {"agent": "oracle"})
    write_json(batch.plan_json, msgspec.structs.replace(plan, profiles=(record,)))
    scan_batch(batch)
    found = list_batches(batch.folder.parent.parent)[0]
    assert (found["cost_usd"], found["cost_unknown"]) == (0.5, 1)


def test_a_try_that_is_there_twice_costs_once(batch: Batch) -> None:
    """Harbor was killed between the moment a failed try was set aside and its removal."""
    folder = make_trial(batch, "a__1", reward=None, error="RuntimeError", cost=1.0)
    kept = set_aside(folder, batch.superseded, 1)
    assert kept.is_dir()
    scan_batch(batch)
    assert sum(row.usage.cost_usd or 0 for row in view_batch(batch).rows()) == 1.0
    shutil.rmtree(folder)
    make_trial(batch, "a__1", cost=2.0)
    scan_batch(batch)
    view = view_batch(batch)
    assert [row.name for row in view.superseded] == ["a__1-try1"]
    assert sum(row.usage.cost_usd or 0 for row in view.rows()) == 3.0


def test_a_clock_that_was_set_back_makes_durations_unknown_and_loses_nothing(batch: Batch) -> None:
    """A trial ended before it began, and a wave of later trials has earlier times than the first one."""
    folder = make_trial(batch, "a__1", second=5)
    result = json.loads((folder / "result.json").read_text())
    timing = {"started_at": "2026-01-23T16:30:05Z", "finished_at": "2026-01-23T15:30:05Z"}
    result |= {**timing, "agent_execution": timing}
    (folder / "result.json").write_text(json.dumps(result))
    make_trial(batch, "a__2", second=1, job=f"{STAMP}-w2__p", reward=0.0)
    found = outcomes(batch)
    assert (found["p", "a", 1], found["p", "a", 2]) == ("failed", "passed")
    view = view_batch(batch)
    row = next(row for row in view.rows() if row.name == "a__1")
    assert row.trial is not None
    assert row.trial.phases.agent_sec is None
    export_index(batch, view)
    entries = json.loads(batch.index_json.read_text())["runs"]
    assert [e["elapsed_sec"] for e in entries if e["trial_dir"] and e["trial_dir"].endswith("a__1")] == [None]


def test_what_was_left_out_says_why(tmp_path: Path) -> None:
    batch = allocate(tmp_path, "s")
    excluded = (
        Exclusion("needs a GPU", task=TaskRef("a", "d")),
        Exclusion("gave up", profile="p", task=TaskRef("b", "d"), errored=True),
    )
    make_plan(batch, ("p",), "ab", 1, excluded=excluded)
    scan_batch(batch)
    cells = {c.task.id: (c.outcome, c.reason) for c in view_batch(batch).cells}
    assert cells == {"a": ("not_run", "needs a GPU"), "b": ("errored", "gave up")}


def test_an_unfinished_trial_is_not_dropped(batch: Batch) -> None:
    folder = batch.runs / f"{STAMP}__p" / "a__1"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"task": {"path": "/x/a", "source": "d"}, "trial_name": "a__1"}))
    assert outcomes(batch)["p", "a", 1] == "cancelled"


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


def hold_a_batch(root: Path) -> None:
    """Make it a results folder, which has its index in it."""
    (allocate(root, "s").folder / "runs").mkdir()


def test_migrations_are_applied_once_and_kept_in_order(tmp_path: Path) -> None:
    hold_a_batch(tmp_path)
    for _ in range(2):
        with open_index(tmp_path) as connection:
            rows = [row[0] for row in connection.execute("SELECT name FROM migrations ORDER BY name")]
    assert rows == [name for name, _ in MIGRATIONS] == sorted(name for name, _ in MIGRATIONS)


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


def test_the_list_agrees_with_the_summary(batch: Batch) -> None:
    make_trial(batch, "a__0", reward=None, error="CancelledError")
    make_trial(batch, "a__1", second=1, job=f"{STAMP}-w2__p")
    make_trial(batch, "a__2", second=2, job=f"{STAMP}-w2__p")
    root = batch.folder.parent.parent
    scan_all(root)
    listed = list_batches(root)[0]
    assert (listed["trials"], listed["passed"], listed["not_measured"]) == (2, 2, 6)


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


def test_an_error_run_again_never_fills_a_cell(tmp_path: Path) -> None:
    batch = allocate(tmp_path, "s")
    make_plan(batch, ("p",), "a", 2, superseded=(f"{STAMP}__p/a__1",))
    make_trial(batch, "a__1", reward=None, error="RuntimeError")
    make_trial(batch, "a__2", second=2)
    scan_batch(batch)
    view = view_batch(batch)
    assert [c.outcome for c in view.cells] == ["passed", "not_run"]
    assert [row.name for row in view.superseded] == ["a__1"]


def test_of_two_errors_the_newer_counts(tmp_path: Path) -> None:
    batch = allocate(tmp_path, "s")
    make_plan(batch, ("p",), "a", 1)
    make_trial(batch, "a__1", reward=None, error="RuntimeError")
    make_trial(batch, "a__2", reward=None, error="RuntimeError", second=5)
    scan_batch(batch)
    assert [cell.row.name for cell in view_batch(batch).cells if cell.row] == ["a__2"]


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


def facts(root: Path) -> list[tuple[object, ...]]:
    with sqlite3.connect(root / FILE_NAME) as connection:
        return connection.execute("SELECT trial, profile_id, family, labels FROM trials ORDER BY trial").fetchall()


def test_what_a_plan_says_stands_beside_each_trial(tmp_path: Path) -> None:
    batch = labelled(tmp_path)
    scan_batch(batch)
    assert facts(tmp_path) == FACTS
    view = view_batch(batch)
    export_index(batch, view)
    written = json.loads(batch.index_json.read_text())
    assert written["labels"] == {"role": "baseline", "run": "night-1"}
    assert {(run["task_id"], run["profile_id"], run["family"]) for run in written["runs"]} == {
        ("a", "id-p", "first"),
        ("b", "id-p", None),
    }
    rows = [(row["task"], row["profile_id"], row["family"], row["labels"]) for row in open_results(tmp_path).trials()]
    assert rows == [("a", "id-p", "first", LABELS), ("b", "id-p", None, LABELS)]


def test_a_plan_that_changes_changes_it_without_reading_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = labelled(tmp_path)
    scan_batch(batch)
    plan = read_json(batch.plan_json, Plan)
    write_json(batch.plan_json, msgspec.structs.replace(plan, labels={"run": "night-2"}))
    monkeypatch.setattr(scan, "read_trial", None)
    scan_all(tmp_path)
    assert {row[3] for row in facts(tmp_path)} == {'{"run":"night-2"}'}
    assert list_batches(tmp_path, {"run": "night-1"}) == []
    assert len(list_batches(tmp_path, {"run": "night-2"})) == 1


def test_an_index_of_an_earlier_version_learns_it_from_plans_alone(tmp_path: Path) -> None:
    """No result is read: there is none any more."""
    batch = labelled(tmp_path)
    scan_batch(batch)
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute("DROP INDEX trials_by_profile_id")
        connection.execute("DROP TABLE profiles")
        for table, columns in (("trials", ("profile_id", "family", "labels")), ("batches", ("labels", "stamp"))):
            for column in columns:
                connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        connection.execute("DELETE FROM migrations WHERE name = '005_plan_facts'")
    shutil.rmtree(batch.runs)
    batch.runs.mkdir()
    with open_index(tmp_path):
        pass
    assert facts(tmp_path) == FACTS
    assert [row["labels"] for row in list_batches(tmp_path)] == [LABELS]


def old(batch: Batch) -> None:
    """As if it had ended long ago."""
    for path in [batch.folder, *batch.folder.rglob("*")]:
        os.utime(path, (1_700_000_000, 1_700_000_000))


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
