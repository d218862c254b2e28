"""`tbench analyze` as a person meets it."""

import csv
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.experiments import ORACLE, Project
from support.results import make_plan, make_trial
from support.trajectories import bash, edit, put, trajectory
from terminalbench.experiments.batch import Batch, allocate

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


def test_batches_by_number(experiment: Path, tbench: Any) -> None:
    assert tbench("analyze", experiment, "--batch", "0", "--quiet").out == ""
    assert len(rows(Path("results/s/0/analytics"))) == 2
    for spelled in ("0,1", "all"):
        tbench("analyze", experiment, "--batch", spelled)
        assert len(rows(Path("results/s/analytics"))) == 4
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
        (["--failed", "--succeeded"], "exclude each other"),
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


@pytest.mark.parametrize("module", ["terminalbench.analytics", "terminalbench.experiments"])
def test_the_old_spellings(experiment: Path, module: str) -> None:
    batch = Batch(Path("results/s/1").resolve())
    where = [str(batch.runs)] if module.endswith("analytics") else ["analyze", str(experiment)]
    ran = subprocess.run([sys.executable, "-m", module, *where], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 3, ran.stderr
    assert len(rows(batch.analytics)) == 2
