"""`tbench import`, and `tbench compare` on files that other tools wrote: what a user types, sees, and finds on disk."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from results_kit import rewarded

from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import Plan
from terminalbench.harbor.read import READER
from terminalbench.index import places, scan
from terminalbench.index.scan import scan_all
from terminalbench.json_files import read_json
from terminalbench.lab import imports
from terminalbench.lab.select import select

ROWS = [
    (f"t{n}", profile, n % 4 != 0 if profile == "big" else n % 4 == 0)
    for n in range(24)
    for profile in ("small", "big")
]


def table(path: Path, rows: list[tuple[str, str, bool]] = ROWS, more: str = "") -> Path:
    lines = [f"{task},{profile},{str(passed).lower()},0.5,100\n" for task, profile, passed in rows]
    path.write_text(f"task,profile,passed,cost,tokens\n{''.join(lines)}{more}")
    return path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "somewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def everything(folder: Path) -> list[tuple[str, int]]:
    return sorted(
        (str(p.relative_to(folder)), p.stat().st_mtime_ns) for p in folder.rglob("*") if "index.db" not in p.name
    )


def test_a_file_is_compared_where_it_lies_and_nothing_is_written(here: Path, tbench: Callable[..., Any]) -> None:
    table(here / "results.csv", more="t9,big,perhaps,1,1\n")
    before = everything(here)
    ran = tbench("compare", "results.csv")
    said = " ".join(ran.out.split())
    assert ran.code == 0, ran.err
    assert "big vs small: +50.0 pt" in said
    assert "p < 0.001: better" in said or "better" in said.split("big vs small:")[1][:120]
    assert "1 not used: passed is neither true nor false" in said
    assert "the agent settings, machine and environment are unknown" in said
    assert everything(here) == before
    assert not list(here.glob("index.db*"))
    found = json.loads(tbench("compare", "results.csv", "--json").out)
    assert [(p["profile"], p["planned"], p["passed"], p["cost_usd"], p["tokens"]) for p in found["profiles"]] == [
        ("small", 24, 6, 12.0, 2400),
        ("big", 24, 18, 12.0, 2400),
    ]
    assert tbench("compare", "results.csv", "--fail-if", "worse", "--baseline", "big").code == 100


def test_scores_of_partial_credit_are_compared_by_their_means(here: Path, tbench: Callable[..., Any]) -> None:
    lines = [f"t{n},{name},{base + n % 3 / 10}" for n in range(12) for name, base in (("old", 0.2), ("new", 0.5))]
    (here / "scores.csv").write_text("\n".join(["task,system,score", *lines]))
    by_pass = tbench("compare", "scores.csv")
    assert "24 rewards between 0 and 1 count as not passed" in " ".join(by_pass.out.split())
    by_mean = tbench("compare", "scores.csv", "--metric", "reward")
    assert "new vs old, reward: +0.300, 12 tasks better, 0 worse, p < 0.001: better" in " ".join(by_mean.out.split())
    table = [line.split() for line in by_mean.out.splitlines() if line.startswith(("old ", "new  "))]
    assert [("0.300" in line, "0.600" in line) for line in table] == [(True, False), (False, True)]


def test_two_files_that_name_no_profile_are_two(here: Path, tbench: Callable[..., Any]) -> None:
    for name, share in (("a", 2), ("b", 3)):
        (here / name).mkdir()
        held = {f"instance_o__r-{n}": n % share == 0 for n in range(30)}
        (here / name / "eval_results.json").write_text(json.dumps(held))
    found = json.loads(tbench("compare", "a/eval_results.json", "b/eval_results.json", "--json").out)
    assert [(one["profile"], one["passed"]) for one in found["profiles"]] == [("a", 15), ("b", 10)]
    for name in "ab":
        (here / name / "same").mkdir()
        (here / name / "eval_results.json").rename(here / name / "same" / "eval_results.json")
    twins = json.loads(tbench("compare", "a/same/eval_results.json", "b/same/eval_results.json", "--json").out)
    assert sorted((one["passed"], one["planned"]) for one in twins["profiles"]) == [(10, 30), (15, 30)]
    assert len({one["profile"] for one in twins["profiles"]}) == 2


def test_an_import_has_the_life_of_a_batch(here: Path, tbench: Callable[..., Any]) -> None:
    broken = "t99,big,,,\n"
    table(here / "mine.csv", more=broken)
    made = tbench("import", "mine.csv")
    assert made.code == 0, made.err
    assert "results/mine/0: table, 49 trials of 2 profiles on 25 tasks" in made.out
    listed = json.loads(tbench("list", "--json").out)
    assert [(b["batch"], b["name"], b["planned"], b["passed"], b["failed"], b["not_measured"]) for b in listed] == [
        ("mine/0", "mine, imported (table)", 49, 24, 24, 1)
    ]
    assert "big vs small: +50.0 pt" in " ".join(tbench("compare", "mine/0").out.split())
    file = json.loads(tbench("compare", "mine.csv", "--json").out)
    batch = json.loads(tbench("compare", "mine/0", "--json").out)
    assert batch["contrasts"][0]["estimate"] == file["contrasts"][0]["estimate"]
    assert tbench("report", "mine/0").code == 0
    assert (here / "results/mine/0/analytics/report.html").is_file()
    counted = tbench(
        "query",
        "SELECT profile, count(*) AS n, sum(all_tokens) AS t, min(profile_id) AS i FROM trials GROUP BY 1",
        "--json",
    )
    assert json.loads(counted.out) == [
        {"profile": "big", "n": 25, "t": 2400, "i": None},
        {"profile": "small", "n": 24, "t": 2400, "i": None},
    ]
    rows = json.loads(tbench("export", "mine/0", "--format", "json").out)
    assert {row["tokens"] for row in rows} == {100, None}
    assert tbench("view", "--export", here / "site").code == 0
    shown = tbench("show", "mine/0", "big", "t99").out
    assert "errored" in shown
    assert "no verdict" in shown
    assert "(imported: table)" in shown
    assert tbench("errors", "mine/0").code == 0
    refused = tbench("resume", "mine/0")
    assert (refused.code, "imported from" in refused.err) == (2, True)
    again = tbench("export", "mine/0", "-o", here / "again.csv")
    assert again.code == 0
    twice = json.loads(tbench("compare", "again.csv", "--json").out)
    assert [(p["profile"], p["passed"]) for p in twice["profiles"]] == [
        (p["profile"], p["passed"]) for p in batch["profiles"]
    ]


def test_importing_again_changes_nothing_and_a_changed_source_is_named(here: Path, tbench: Callable[..., Any]) -> None:
    source = table(here / "mine.csv")
    tbench("import", source)
    before = everything(here / "results")
    same = tbench("import", "mine.csv")
    assert (same.code, "nothing changed" in same.out) == (0, True)
    source.rename(here / "moved.csv")
    assert "nothing changed" in tbench("import", "moved.csv").out, "known by its content"
    assert everything(here / "results") == before
    (here / "moved.csv").rename(source)
    table(source, [*ROWS[1:10], ("t5", "small", True), *ROWS[12:], ("new", "big", True)])
    changed = tbench("import", "mine.csv")
    assert changed.code == 2
    assert "has changed since it was imported as mine/0" in changed.err
    assert "1 new, 2 gone, 1 changed" in changed.err
    assert everything(here / "results") == before
    assert f"since the import, {source} changed" in " ".join(tbench("compare", "mine/0").out.split())
    updated = tbench("import", "mine.csv", "--update", "--json")
    assert json.loads(updated.out)["difference"] == "1 new, 2 gone, 1 changed"
    told = " ".join(tbench("compare", "mine/0").out.split())
    assert "read again 1 time after it had changed" in told
    assert "since the import," not in told
    rows = json.loads(tbench("export", "mine/0", "--format", "json").out)
    assert len(rows) == 47
    assert len(list((here / "results/mine/0/imported").iterdir())) == 1
    os.utime(source)
    assert "since the import," not in tbench("compare", "mine/0").out, "touched, not changed"
    source.unlink()
    assert "is gone" in " ".join(tbench("compare", "mine/0").out.split())


def test_an_import_is_read_again_by_a_mended_rule(
    here: Path, tbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    table(here / "scores.csv")
    tbench("import", "scores.csv")
    scan_all(here / "results")
    assert scan_all(here / "results").read == 0
    for module in (scan, places):
        monkeypatch.setattr(module, "READER", READER + 1)
    assert scan_all(here / "results").read == len(ROWS)
    assert scan_all(here / "results").read == 0


def test_names_copies_and_profiles_as_asked(here: Path, tbench: Callable[..., Any]) -> None:
    (here / "junit.xml").write_text("<testsuite name='s'><testcase name='a'/></testsuite>")
    (here / "results" / "taken" / "0").mkdir(parents=True)
    (here / "results" / "taken" / "0" / "plan.json").write_text("{}")
    assert tbench("import", "junit.xml", "--name", "taken").code == 2
    assert tbench("import", "junit.xml", "--name", "a/b").code == 2
    assert (
        tbench("import", "junit.xml", "--name", "unit", "--profile", "mine", "--dataset", "suite", "--copy").code == 0
    )
    batch = Batch(here / "results" / "unit" / "0")
    assert (batch.imported / "source" / "junit.xml").read_bytes() == (here / "junit.xml").read_bytes()
    (view,) = select(batch.folder).views()
    assert [(c.profile, c.task.dataset, c.task.id) for c in view.cells] == [("mine", "suite", "a")]
    other = tbench("import", "junit.xml", "--name", "unit", "--profile", "yours")
    assert (other.code, "was read with other options" in other.err) == (2, True)
    table(here / "taken.csv")
    assert "results/taken-2/0" in tbench("import", "taken.csv").out, "never beside batches that were run"


def test_harbor_jobs_are_imported_as_they_are_read(here: Path, tbench: Callable[..., Any]) -> None:
    jobs = here / "jobs"
    for job, agent in (("job-1", "nop"), ("job-2", "codex")):
        for task in "abc":
            name = f"{task}__{job}"
            config = {"task": {"path": f"/tasks/{task}"}, "trial_name": name, "agent": {"name": agent}}
            document = rewarded(
                float(agent == "codex" and task != "c"), id=name, trial_name=name, task_name=task, config=config,
                task_id={"path": f"/tasks/{task}"}, source=None, agent_info={"name": agent, "version": "1", "model_info": None},
            )  # fmt: skip
            (jobs / job / name / "agent").mkdir(parents=True)
            (jobs / job / name / "result.json").write_text(json.dumps(document))
    assert tbench("import", jobs, "--copy").code == 0
    was = json.loads(tbench("compare", jobs, "--json").out)
    now = json.loads(tbench("compare", "jobs/0", "--results", here / "results", "--json").out)
    kept = [(one["profile"], one["passed"], one["planned"]) for one in now["profiles"]]
    assert (
        sorted(kept)
        == sorted((p["profile"], p["passed"], p["planned"]) for p in was["profiles"])
        == [("codex", 2, 3), ("nop", 0, 3)]
    )
    ids = json.loads(tbench("query", "SELECT DISTINCT profile_id FROM trials", "--json").out)
    assert all(row["profile_id"] for row in ids), "the treatments of Harbor's trials are known"
    assert len(list((here / "results/jobs/0/imported/source").rglob("result.json"))) == 6
    assert "nothing changed" in tbench("import", jobs).out


def test_an_import_that_was_killed_is_done_again(
    here: Path, tbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    table(here / "mine.csv")

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(imports, "write_json", dies)
    assert tbench("import", "mine.csv").code == 130
    assert json.loads(tbench("list", "--json").out) == []
    monkeypatch.undo()
    monkeypatch.chdir(here)
    assert "results/mine/0: table" in tbench("import", "mine.csv").out
    assert [b["batch"] for b in json.loads(tbench("list", "--json").out)] == ["mine/0"]


def test_trials_that_are_torn_are_said(here: Path, tbench: Callable[..., Any]) -> None:
    table(here / "mine.csv")
    tbench("import", "mine.csv")
    batch = Batch(here / "results" / "mine" / "0")
    plan = read_json(batch.plan_json, Plan)
    file = batch.imported / plan.imported.file
    file.write_bytes(file.read_bytes()[:-20])
    assert any("cannot be read" in line for line in scan_all(here / "results").unreadable)
    assert "--update reads the source again" in tbench("index").err + tbench("index").out
    assert tbench("import", "mine.csv", "--update").code == 0
    assert scan_all(here / "results").unreadable == ()


def test_what_is_no_result_is_one_message(here: Path, tbench: Callable[..., Any]) -> None:
    (here / "notes.txt").write_text("hello")
    for folder, files in {"empty": (), "tables": ("a.csv", "b.csv"), "one": ("c.csv",)}.items():
        (here / folder).mkdir()
        for file in files:
            (here / folder / file).write_text("when,what\n1,2\n")
    for name, said in (
        ("notes.txt", "no result format is recognised in it"),
        ("empty", "holds no file that ends in .csv, "),
        ("tables", "no result format is recognised in its 2 files: a.csv, b.csv"),
        ("tables", "formats: inspect, junit, "),
        ("one", "recognised in its 1 file: c.csv"),
        ("missing.csv", "no such"),
    ):
        for command in ("compare", "import"):
            ran = tbench(command, name)
            assert (ran.code, said in ran.err, "Traceback" in ran.err) == (2, True, False), (command, name, ran.err)
    table(here / "t.csv")
    wrong = tbench("report", "t.csv")
    assert (wrong.code, "tbench import t.csv" in wrong.err) == (2, True)
    assert tbench("compare", "t.csv", "--column", "passed").code == 2
    assert not (here / "results").exists()


def test_a_secret_of_the_environment_is_hidden(
    here: Path, tbench: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "sk-verysecret-1234567890abcdef")
    (here / "t.csv").write_text("task,profile,passed,error\na,p,,refused sk-verysecret-1234567890abcdef\n")
    assert tbench("import", "t.csv").code == 0
    kept = b"".join(path.read_bytes() for path in (here / "results").rglob("*") if path.is_file())
    assert b"verysecret" not in kept
    assert b"refused" in kept
