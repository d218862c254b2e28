"""Results for programs: the public Python API, SQL, and what they refuse."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import terminalbench
from conftest import REPO
from support.results import STAMP, make_plan, make_trial
from terminalbench.errors import TbenchError, UserError
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.experiments.plan import Exclusion
from terminalbench.index.results import BATCHES, FINDINGS, TRIALS, open_results
from terminalbench.index.scan import scan_all
from terminalbench.index.sql import ask
from terminalbench.json_files import append_jsonl
from terminalbench.records.trial import Finding


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    made = allocate(tmp_path / "results", "s")
    make_plan(made, ("p", "q"), "ab", 2, excluded=(Exclusion("no key", profile="q"),))
    make_trial(made, "a__1", cost=0.5)
    make_trial(made, "a__2", reward=0.0, second=1)
    make_trial(made, "b__1", reward=None, error="RuntimeError")
    aside = make_trial(made, "b__1", job="aside", reward=None, error="RuntimeError", cost=0.25)
    (made.superseded / f"{STAMP}__p").mkdir(parents=True)
    aside.rename(made.superseded / f"{STAMP}__p" / "b__1-try1")
    for name, value in (("loops", 3), ("tested_before_finish", True), ("failure_class", "setup"), ("reward", None)):
        append_jsonl(
            made.analytics / "findings.jsonl", Finding(f"{STAMP}__p/a__1", "x", "1", name, value, "why", [1, 2])
        )
    return made


@pytest.fixture
def root(batch: Batch) -> Path:
    return batch.folder.parent.parent


def test_the_members_of_results_are_these(tmp_path: Path) -> None:
    methods = {name for name in dir(open_results(tmp_path)) if not name.startswith("_")}
    assert methods == {"batches", "findings", "root", "trials"}
    table = {name for name in dir(open_results(tmp_path).batches()) if not name.startswith("_")}
    assert table == {"columns", "rows", "to_arrow", "to_pandas", "to_polars"}


def test_importing_the_package_loads_nothing_else() -> None:
    code = "import sys, terminalbench; print(sorted(m for m in sys.modules if m.startswith('terminalbench')))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "['terminalbench', 'terminalbench.version']"


def test_a_row_for_every_planned_trial_and_every_try(root: Path) -> None:
    table = terminalbench.open_results(root).trials()
    assert len(table) == 9
    assert all(list(row) == list(TRIALS) for row in table)
    by_cell = {(r["profile"], r["task"], r["attempt"]): r for r in table if not r["superseded"]}
    first = by_cell["p", "a", 1]
    assert (first["outcome"], first["passed"], first["measured"], first["cost_usd"]) == ("passed", True, True, 0.5)
    assert first["wall_sec"] == 60.0
    broken = by_cell["p", "b", 1]
    assert (broken["outcome"], broken["passed"], broken["reason"], broken["cost_usd"]) == ("errored", None, "why", None)
    absent = by_cell["q", "a", 1]
    assert (absent["outcome"], absent["reason"], absent["folder"]) == ("not_run", "no key", None)
    tries = [row for row in table if row["superseded"]]
    assert [(row["cost_usd"], row["attempt"]) for row in tries] == [(0.25, None)]


def test_batches_and_findings(root: Path) -> None:
    results = open_results(root)
    (batch,) = results.batches()
    assert list(batch) == list(BATCHES)
    assert (batch["batch"], batch["planned"], batch["passed"]) == ("s/0", 8, 1)
    findings = list(results.findings("s/0"))
    assert [(f["name"], f["value"], f["number"], f["steps"]) for f in findings] == [
        ("loops", "3", 3.0, "1,2"),
        ("tested_before_finish", "true", 1.0, "1,2"),
        ("failure_class", "setup", None, "1,2"),
        ("reward", None, None, "1,2"),
    ]
    assert list(findings[0]) == list(FINDINGS)
    with pytest.raises(UserError, match='no batch "s/7"'):
        results.trials("s/7")
    with pytest.raises(UserError, match="no results here"):
        open_results(root / "nowhere")


def test_frames_keep_unknown_apart_from_zero(root: Path) -> None:
    table = open_results(root).trials()
    polars = table.to_polars()
    pandas = table.to_pandas()
    arrow = table.to_arrow()
    assert polars.shape == pandas.shape == (arrow.num_rows, arrow.num_columns) == (9, len(TRIALS))
    assert polars["cost_usd"].null_count() == pandas["cost_usd"].isna().sum() == 7
    assert polars["passed"].drop_nulls().to_list() == [True, False]
    assert str(pandas["input_tokens"].dtype) == "Int64"
    empty = open_results(root).findings().to_polars().filter(False)
    assert empty.columns == list(FINDINGS)


def test_without_the_library_the_extra_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(UserError, match="polars is not installed") as error:
        open_results(root).trials().to_polars()
    assert "terminalbench[dataframes]" in str(error.value)


def test_a_torn_findings_file_is_named(batch: Batch, root: Path) -> None:
    with (batch.analytics / "findings.jsonl").open("a") as stream:
        stream.write('{"trial": 3}\n')
    with pytest.raises(TbenchError, match=r"findings\.jsonl: 1 line cannot be read; the first is line 5"):
        open_results(root).findings()


def test_sql_reads(root: Path) -> None:
    scan_all(root)
    answer = ask(root, "SELECT outcome, count(*) AS n FROM trials WHERE NOT superseded GROUP BY 1 ORDER BY 1")
    assert answer.records() == [
        {"outcome": "errored", "n": 1},
        {"outcome": "failed", "n": 1},
        {"outcome": "passed", "n": 1},
    ]
    joined = ask(
        root,
        "SELECT t.task, f.number FROM findings f JOIN trials t ON f.trial = t.job || '/' || t.trial WHERE name = 'loops'",
    )
    assert joined.rows == [("a", 3.0)]
    twice = ask(root, "SELECT 1 AS a, 2 AS a")
    assert twice.columns == ["a", "a_2"]
    cut = ask(
        root, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50) SELECT i FROM n", limit=7
    )
    assert (len(cut.rows), cut.more) == (7, True)
    assert not ask(root, "SELECT 1", limit=1).more


def test_every_column_is_documented(root: Path) -> None:
    scan_all(root)
    page = (REPO / "docs" / "results.md").read_text()
    for table in ("batches", "trials", "findings"):
        (line,) = [line for line in page.splitlines() if line.startswith(f"| `{table}` |")]
        columns = set(ask(root, f"SELECT * FROM {table}").columns) - {"stamp", "plan_stamp", "reader"}
        assert {name for name in columns if f"`{name}`" not in line} == set()


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM trials",
        "UPDATE batches SET name = 'x'",
        "INSERT INTO batches (batch, slug, number) VALUES ('x', 'x', 1)",
        "DROP TABLE trials",
        "CREATE TABLE x (a)",
        "CREATE TEMP TABLE x (a)",
        "ATTACH DATABASE '/tmp/x.db' AS x",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA query_only = OFF",
        "VACUUM",
        "SELECT load_extension('x')",
        "SELECT * FROM findings; DELETE FROM trials",
        "BEGIN IMMEDIATE",
    ],
)  # fmt: skip
def test_sql_that_does_more_is_refused(root: Path, sql: str) -> None:
    scan_all(root)
    before = (root / "index.db").read_bytes()
    with pytest.raises(UserError) as error:
        ask(root, sql)
    assert str(error.value).startswith("SQL: ")
    assert (root / "index.db").read_bytes() == before
    assert len(ask(root, "SELECT * FROM trials").rows) == 4


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("SELECT * FROM trails", 'did you mean "trials"'),
        ("SELECT * FROM nothing_like_it", "known: "),
        ("SELECT outcom FROM trials", 'did you mean "outcome"'),
        ("SELEC 1", "syntax error"),
        ("", "is not a query"),
    ],
)
def test_wrong_sql_says_what_there_is(root: Path, sql: str, hint: str) -> None:
    scan_all(root)
    with pytest.raises(UserError, match=hint):
        ask(root, sql)


def test_the_query_command(tbench, root: Path) -> None:
    sql = "SELECT task, cost_usd, 'a\x1b[2J' AS hostile FROM trials ORDER BY cost_usd DESC LIMIT 2"
    shown = tbench("query", sql, "--results", root)
    assert shown.code == 0
    assert shown.out.splitlines()[1].split() == ["a", "0.5", "a␛[2J"]
    assert json.loads(tbench("query", sql, "--json", "--results", root).out)[1]["cost_usd"] == 0.25
    assert tbench("query", sql, "--csv", "--results", root).out.splitlines()[0] == "task,cost_usd,hostile"
    cut = tbench("query", "SELECT trial FROM trials", "--limit", 1, "--results", root)
    assert len(cut.out.splitlines()) == 2
    assert "only the first 1 row shown;" in cut.err
    wrong = tbench("query", "SELECT x FROM trials", "--results", root)
    assert (wrong.code, wrong.out) == (2, "")
    assert "no such column: x" in wrong.err


def test_the_list_command_shows_labels_and_chooses_by_them(tbench, tmp_path: Path) -> None:
    for labels in ({"run": "night-1", "role": "baseline"}, {"run": "night-1"}, {}):
        make_plan(allocate(tmp_path, "s"), labels=labels)
    at = ["list", "--results", str(tmp_path), "--json"]
    both = json.loads(tbench(*at, "--label", "run=night-1").out)
    assert sorted((row["batch"], row["labels"].get("role")) for row in both) == [("s/0", "baseline"), ("s/1", None)]
    (one,) = json.loads(tbench(*at, "--label", "run=night-1", "--label", "role=baseline").out)
    assert one["batch"] == "s/0"
    assert len(json.loads(tbench(*at).out)) == 3
    assert "no batches with these labels" in tbench("list", "--results", str(tmp_path), "--label", "run=none").out


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT {} FROM n"


@pytest.mark.parametrize(
    ("sql", "arguments", "said"),
    [
        (ENDLESS.format("count(*)"), ["--timeout", "0.2"], "SQL: was stopped after 0.2 s (--timeout sets"),
        (ENDLESS.format("i") + " WHERE i < 0", ["--timeout", "0.2"], "was stopped after 0.2 s"),
        (ENDLESS.format("i, zeroblob(4000000)"), ["--limit", "0"], "SQL: needs more than 512 MB of memory"),
        ("SELECT group_concat(hex(zeroblob(9000000))) FROM trials", [], "SQL: string or blob too big"),
    ],
)
def test_a_question_without_an_end_is_ended(tbench, root: Path, sql: str, arguments: list[str], said: str) -> None:
    ran = tbench("query", sql, *arguments, "--results", root)
    assert (ran.code, ran.out) == (2 if "too big" in said else 1, "")
    assert said in ran.err
    assert tbench("query", "SELECT count(*) FROM findings", "--results", root).code == 0
