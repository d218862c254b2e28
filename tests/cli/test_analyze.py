"""`tbench analyze` as a person meets it."""

import csv
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.experiments import ORACLE, Project
from support.judging import recorded
from support.results import make_plan, make_trial
from support.trajectories import bash, edit, put, trajectory
from terminalbench.experiments.batch import allocate

FILE = 'schema_version = 2\nslug = "s"\n[tasks]\nitems = [{ id = "a" }]\n' + ORACLE


@pytest.fixture
def experiment(project: Project) -> Path:
    for _ in range(2):
        batch = allocate(project.root / "results", "s")
        make_plan(batch, ("oracle",), "a", 2)
        put(make_trial(batch, "a__1", profile="oracle"), trajectory(bash("ls"), edit("a.py")))
    return project.experiment(FILE)


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics_detail.csv").open() as stream:
        return list(csv.DictReader(stream))


def test_the_latest_batch_is_analysed(experiment: Path, tbench: Any) -> None:
    ran = tbench("analyze", experiment)
    assert ran.code == 3, "one planned trial did not run"
    assert "missing: s/1: 1 trial not run" in ran.out
    assert "written to results/s/1/analytics" in ran.out
    assert not Path("results/s/0/analytics").exists()
    again = tbench("analyze", experiment)
    assert "2 trials: 0 read, 1 unchanged" in again.out
    assert ran.err == "", "no progress line without a terminal"
    for name in ("report.html", "comparison_report.md"):
        assert "oracle" in Path("results/s/1/analytics", name).read_text()


def test_batches_by_number(experiment: Path, tbench: Any) -> None:
    assert tbench("analyze", experiment, "--batch", "0", "--quiet").out == ""
    assert len(rows(Path("results/s/0/analytics"))) == 2
    for spelled in ("0,1", "all"):
        tbench("analyze", experiment, "--batch", spelled)
        assert len(rows(Path("results/s/analytics"))) == 4
    assert "s/0" in Path("results/s/analytics/report.html").read_text(), "the trend names the other batch"
    tbench("analyze", experiment, "--output", "there")
    assert len(rows(Path("there"))) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--batch", "7"], "there is no batch 7 of s (batches: 0, 1)"),
        (["--batch", "x"], '--batch is a number, several with commas, or "all"; not "x"'),
        (["--profiles", "orakle"], 'no profile is called "orakle" (did you mean "oracle"?)'),
        (["--tasks", "b"], 'no task is called "b"'),
        (["--failed"], "no trial failed"),
        (["--failed", "--succeeded"], "cannot be combined"),
    ],
)
def test_wrong_questions(experiment: Path, tbench: Any, arguments: list[str], message: str) -> None:
    ran = tbench("analyze", experiment, *arguments)
    assert ran.code == 2
    assert message in ran.err


def test_no_batch_yet(project: Project, tbench: Any) -> None:
    ran = tbench("analyze", project.experiment(FILE))
    assert (ran.code, "s has no batch yet" in ran.err) == (2, True)
    assert tbench("analyze", "none.toml").code == 2


def test_list_writes_nothing(experiment: Path, tbench: Any) -> None:
    ran = tbench("analyze", experiment, "--list")
    assert ran.out.splitlines()[0].split() == ["batch", "task", "profile", "attempt", "outcome", "trial"]
    assert ran.out.splitlines()[1].split() == ["s/1", "a", "oracle", "1", "passed", "a__1"]
    assert not Path("results/s/1/analytics").exists()


def test_a_sample_has_no_report(experiment: Path, tbench: Any) -> None:
    page = Path("results/s/1/analytics/selection/report.html")
    tbench("analyze", experiment, "--tasks", "a")
    assert page.is_file()
    tbench("analyze", experiment, "--limit", "1")
    assert not page.exists(), "that of other trials is taken away"


@pytest.mark.parametrize("module", ["terminalbench.analytics", "terminalbench.experiments"])
def test_the_old_spellings(experiment: Path, tbench: Any, module: str) -> None:
    where = [str(Path("results/s/1/runs").resolve())] if module.endswith("analytics") else ["analyze", str(experiment)]
    command = [sys.executable, "-m", module, *where, "--list"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert (ran.returncode, ran.stdout) == (0, tbench("analyze", where[-1], "--list").out), ran.stderr


def test_without_a_model_nothing_is_judged_and_it_is_said(experiment: Path, tbench: Any) -> None:
    assert "nothing was judged: no judge model is set" in tbench("analyze", experiment).out
    assert "judge" not in tbench("analyze", experiment, "--no-llm").out
    for arguments in (["--llm-only"], ["--estimate-cost"], ["--rubric", "strategy"]):
        ran = tbench("analyze", experiment, *arguments)
        assert (ran.code, "no judge model is set" in ran.err) == (2, True), arguments
    assert tbench("analyze", experiment, "--no-llm", "--model", "x").code == 2


def test_the_judge_of_the_file_and_of_the_command_line(experiment: Path, tbench: Any) -> None:
    for name in ("file", "line"):
        recorded(Path(f"{name}.jsonl"), {})
    experiment.write_text(FILE + '[analysis]\njudge_model = "replay:file.jsonl"\n')
    ran = tbench("analyze", experiment)
    assert (ran.code, "file.jsonl holds no recorded answers" in ran.err) == (2, True), ran.err
    assert "written to" in ran.out, "the tables are there all the same"
    assert "line.jsonl" in tbench("analyze", experiment, "--model", "replay:line.jsonl").err
    estimate = tbench("analyze", experiment, "--estimate-cost", "--rubric", "strategy")
    assert estimate.code == 0, estimate.err
    assert "replay:file.jsonl" in estimate.out
    assert tbench("analyze", experiment, "--no-llm").code == 3


def test_a_contrast_is_printed_as_a_sentence(experiment: Path, project: Project, tbench: Any) -> None:
    batch = allocate(project.root / "results", "s")
    make_plan(batch, ("p", "q"), "a")
    for profile, reward in (("p", 1.0), ("q", 0.0)):
        put(make_trial(batch, "a__1", profile=profile, reward=reward), trajectory(bash("ls"), edit("a.py")))
    ran = tbench("analyze", batch.folder, "--no-llm")
    assert ran.code == 0, ran.err
    assert "q vs p: -100.0 pt" in ran.out
    assert tbench("analyze", batch.folder, "--compare", "p", "nobody").code == 2
