"""What an index of an earlier version, or of an earlier plan, learns."""

import json
import sqlite3
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import msgspec
import pytest

from index.batches import LABELS, hold_a_batch, labelled, old, standing
from support.results import make_trial
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import Plan
from terminalbench.harbor.read import READER
from terminalbench.index import places, scan, totals
from terminalbench.index.queries import view_batch
from terminalbench.index.results import export_index, list_batches, open_results
from terminalbench.index.scan import ScanReport, scan_all, scan_batch
from terminalbench.index.sql import ask
from terminalbench.index.store import FILE_NAME, MIGRATIONS, open_index
from terminalbench.json_files import read_json, write_json

FACTS = [("a__1", "id-p", "first", LABELS), ("b__1", "id-p", None, LABELS)]


def test_an_index_of_an_earlier_version_is_made_anew(tmp_path: Path) -> None:
    batch = labelled(tmp_path)
    scan_batch(batch)
    before = ask(tmp_path, "SELECT * FROM trials ORDER BY trial").rows
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute("ALTER TABLE trials DROP COLUMN counts")
        connection.execute("UPDATE migrations SET name = '018_reader'")
        connection.execute("UPDATE trials SET outcome = 'failed'")
        connection.execute("UPDATE summaries SET passed = 7")
    assert scan_all(tmp_path) == ScanReport(seen=2, read=2)
    assert ask(tmp_path, "SELECT * FROM trials ORDER BY trial").rows == before
    assert facts(tmp_path) == FACTS
    assert list_batches(tmp_path)[0]["passed"] == 2


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


def test_migrations_are_applied_once_and_kept_in_order(tmp_path: Path) -> None:
    hold_a_batch(tmp_path)
    for _ in range(2):
        with open_index(tmp_path) as connection:
            rows = [row[0] for row in connection.execute("SELECT name FROM migrations ORDER BY name")]
    assert rows == [name for name, _ in MIGRATIONS] == sorted(name for name, _ in MIGRATIONS)


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
