"""`tbench export`: what other programs get."""

import csv
import io
import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from support.results import STAMP, make_plan, make_trial
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.index.results import TRIALS, open_results
from terminalbench.json_files import append_jsonl
from terminalbench.records.trial import Finding
from terminalbench.report.export import csv_bytes, junit_xml


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    made = allocate(tmp_path / "results", "s")
    make_plan(made, ("p", "q"), "ab", 2)
    make_trial(made, "a__1", cost=0.5)
    make_trial(made, "a__2", reward=0.0, second=1)
    make_trial(made, "b__1", reward=None, error="RuntimeError")
    make_trial(made, "b__2", reward=None, error="CancelledError")
    make_trial(made, "a__1", profile="q", reward=None, error="AgentTimeoutError")
    return made


def test_csv_and_json_hold_the_same(tbench, batch: Batch) -> None:
    rows = list(csv.DictReader(io.StringIO(tbench("export", batch.folder).out)))
    records = json.loads(tbench("export", batch.folder, "--format", "json").out)
    assert len(rows) == len(records) == 8
    assert [row["outcome"] for row in rows] == [record["outcome"] for record in records]
    assert rows[0]["cost_usd"] == "0.5"
    assert rows[1]["cost_usd"] == ""
    assert records[1]["cost_usd"] is None
    assert rows[0]["passed"] == "true"


def test_a_column_is_one_line(tbench, batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe of CONTRIBUTING.md: its name and type in `TRIALS`, and every form of the table has it."""
    assert "state" not in TRIALS
    monkeypatch.setitem(TRIALS, "state", str)
    rows = list(csv.DictReader(io.StringIO(tbench("export", batch.folder).out)))
    records = json.loads(tbench("export", batch.folder, "--format", "json").out)
    trials = open_results(batch.results_root).trials("s/0")
    assert {row["state"] for row in rows} == {"finished", ""}
    assert [record["state"] or "" for record in records] == [row["state"] for row in rows]
    assert trials.to_polars()["state"].to_list() == trials.to_arrow()["state"].to_pylist()


def test_a_file_and_all_batches(tbench, batch: Batch, tmp_path: Path) -> None:
    other = allocate(tmp_path / "results", "t")
    make_plan(other, ("p",), "a", 1)
    make_trial(other, "a__1")
    ran = tbench("export", "--all", "--results", tmp_path / "results", "-o", tmp_path / "all.csv")
    assert (ran.code, ran.out) == (0, "")
    rows = list(csv.DictReader((tmp_path / "all.csv").open()))
    assert {row["batch"] for row in rows} == {"s/0", "t/0"}
    assert tbench("export", batch.folder, "--all").code == 2


def test_junit_never_calls_the_unmeasured_failed(tbench, batch: Batch) -> None:
    root = ElementTree.fromstring(tbench("export", batch.folder, "--format", "junit").out)
    suites = {suite.get("name"): suite for suite in root}
    assert list(suites) == ["p", "q"]
    assert [(root.get(n)) for n in ("tests", "failures", "errors", "skipped")] == ["8", "1", "2", "4"]
    kinds = {case.get("name"): [child.tag for child in case if child.tag != "system-out"] for case in suites["p"]}
    assert kinds == {"a #1": [], "a #2": ["failure"], "b #1": ["error"], "b #2": ["skipped"]}
    timed_out = next(case for case in suites["q"] if case.get("name") == "a #1")
    assert timed_out.find("error") is not None
    assert timed_out.find("failure") is None
    assert all(suite.get("failures") == str(sum(c.find("failure") is not None for c in suite)) for suite in root)


def test_a_junit_failure_says_why(tbench, batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "sk-hidden-value-1")
    verifier = batch.runs / f"{STAMP}__p" / "a__2" / "verifier"
    verifier.mkdir()
    said = "FAILED tests/test_x.py::test_sum - AssertionError: 3 != 4 <sk-hidden-value-1>\n"
    (verifier / "test-stdout.txt").write_text(said)
    make_trial(batch, "b__3", profile="q", reward=0.0, error="AgentTimeoutError")
    root = ElementTree.fromstring(tbench("export", batch.folder, "--format", "junit").out)
    assert [failure.get("message") for failure in root.iter("failure")] == [
        "tests/test_x.py::test_sum: AssertionError: 3 != 4 <[redacted]>; reward 0.0",
        "AgentTimeoutError: why; reward 0.0",
    ]
    failed = [row for row in open_results(batch.results_root).trials() if row["outcome"] == "failed"]
    crashed = junit_xml("s", [{**row, "reward": None, "folder": None} for row in failed], batch.results_root)
    messages = [failure.get("message") for failure in ElementTree.fromstring(crashed).iter("failure")]
    assert messages == ["no reward", "AgentTimeoutError: why; no reward"]


def test_junit_keeps_batches_apart(tbench, batch: Batch, tmp_path: Path) -> None:
    other = allocate(tmp_path / "results", "s")
    make_plan(other, ("p",), "a", 1)
    make_trial(other, "a__9")
    out = tbench("export", "--all", "--results", tmp_path / "results", "--format", "junit").out
    suites = {suite.get("name"): list(suite) for suite in ElementTree.fromstring(out)}
    assert {name: len(cases) for name, cases in suites.items()} == {"s/0 p": 4, "s/0 q": 4, "s/1 p": 1}
    cases = [case for found in suites.values() for case in found]
    assert len({(case.get("classname"), case.get("name")) for case in cases}) == len(cases)
    assert {(case.get("classname") or "").partition(".")[0] for case in suites["s/1 p"]} == {"s/1"}
    folders = [case.findtext("system-out") for case in cases if case.find("system-out") is not None]
    assert len(folders) == 6
    assert all((tmp_path / "results" / (folder or "-")).is_dir() for folder in folders)


def test_junit_survives_hostile_words(tbench, tmp_path: Path) -> None:
    batch = allocate(tmp_path / "results", "s")
    make_plan(batch, ("p",), "a", 1)
    folder = make_trial(batch, "a__1", reward=None, error="RuntimeError")
    result = json.loads((folder / "result.json").read_text())
    result["exception_info"]["exception_message"] = '<x> ]]> & " \x1b[2J \x00 \ufffe'
    (folder / "result.json").write_text(json.dumps(result))
    out = tbench("export", batch.folder, "--format", "junit").out
    (error,) = ElementTree.fromstring(out).iter("error")
    assert error.get("message", "").startswith('<x> ]]> & " ␛[2J')


def test_parquet_comes_back_as_it_went(tbench, batch: Batch, tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    assert tbench("export", batch.folder, "--format", "parquet", "-o", tmp_path / "x.parquet").code == 0
    frame = polars.read_parquet(tmp_path / "x.parquet")
    assert frame.height == 8
    assert frame["passed"].to_list()[:2] == [True, False]
    assert frame["cost_usd"].null_count() == 7


def test_parquet_asks_for_a_file_and_for_its_extra(tbench, batch: Batch, tmp_path: Path, monkeypatch) -> None:
    assert "-o" in tbench("export", batch.folder, "--format", "parquet").err
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    ran = tbench("export", batch.folder, "--format", "parquet", "-o", tmp_path / "x.parquet")
    assert ran.code == 2
    assert "terminalbench[dataframes]" in ran.err
    assert not (tmp_path / "x.parquet").exists()


def test_findings_are_a_table_of_their_own(tbench, batch: Batch) -> None:
    append_jsonl(batch.analytics / "findings.jsonl", Finding("j/t", "x", "1", "loops", 2))
    rows = list(csv.DictReader(io.StringIO(tbench("export", batch.folder, "--table", "findings").out)))
    assert [(row["name"], row["number"]) for row in rows] == [("loops", "2.0")]
    assert tbench("export", batch.folder, "--table", "findings", "--format", "junit").code == 2


def test_a_spreadsheet_runs_nothing() -> None:
    assert csv_bytes(["a"], [["=1+1"], ["@x"], ["-1"], [-1.5], [None], [True], [b"\xff"]]).decode().splitlines() == [
        "a", "'=1+1", "'@x", "-1", "-1.5", '""', "true", "�",
    ]  # fmt: skip


def test_the_ending_of_the_file_says_the_format_and_no_folder_is_made(tbench, batch, tmp_path: Path) -> None:
    for name, begin in (("x.json", "["), ("x.XML", "<?xml"), ("x.csv", "batch,"), ("x", "batch,")):
        assert tbench("export", batch.folder, "-o", tmp_path / name).code == 0
        assert (tmp_path / name).read_text().startswith(begin)
    ran = tbench("export", batch.folder, "--format", "csv", "-o", tmp_path / "y.json")
    assert (ran.code, (tmp_path / "y.json").exists()) == (2, False)
    assert "--format csv does not match the extension of " in ran.err
    assert tbench("export", batch.folder, "-o", tmp_path / "x.jsonl").code == 2, "not CSV in a file of another name"
    assert tbench("export", batch.folder, "-o", tmp_path / "none" / "x.csv").code == 2
    assert not (tmp_path / "none").exists()
