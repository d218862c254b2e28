"""An analyzer that comes with a user's own package: installed with an entry point, or named as `module:Class`."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.experiments import ORACLE, Project
from support.results import make_plan, make_trial
from support.trajectories import bash, put, trajectory
from terminalbench.experiments.batch import Batch, allocate

FILE = 'schema_version = 2\nslug = "s"\n[tasks]\nitems = [{{ id = "a" }}]\n[analysis]\nanalyzers = ["{}"]\n' + ORACLE
MODULE = """
class Politeness:
    name = "politeness"
    version = "3"

    def analyze(self, trial, trajectory):
        said = [step for step in trajectory.own_steps() if step.source == "agent"] if trajectory else []
        yield trial.finding((self.name, self.version), "calls", sum(len(step.calls) for step in said), "counted")
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of installed packages with one in it that offers an analyzer."""
    site = tmp_path / "site"
    package = site / "manners"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "polite.py").write_text(MODULE)
    installed = site / "manners-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: manners\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[terminalbench.analyzers]\npolite = manners.polite:Politeness\n")
    return site


def finished(project: Project) -> Batch:
    batch = allocate(project.root / "results", "s")
    make_plan(batch, ("oracle",), "a", 1)
    put(make_trial(batch, "a__1", profile="oracle"), trajectory(bash("ls"), bash("pwd")))
    return batch


def analyze(experiment: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "terminalbench.experiments", "analyze", str(experiment)]
    environment = os.environ | {"PYTHONPATH": str(site)}
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)


@pytest.mark.parametrize("spec", ["polite", "manners.polite:Politeness"])
def test_an_analyzer_of_another_package_is_one_of_ours(project: Project, site: Path, spec: str) -> None:
    batch = finished(project)
    experiment = project.experiment(FILE.format(spec))
    ran = analyze(experiment, site)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    with (batch.analytics / "metrics_detail.csv").open() as stream:
        assert [row["politeness.calls"] for row in csv.DictReader(stream)] == ["2"]
    assert '"analyzer":"politeness","version":"3"' in (batch.analytics / "findings.jsonl").read_text()
    if spec != "polite":
        return  # the rest is the same, however it was named
    assert "0 read" in (again := analyze(experiment, site)).stdout or "from the cache" in again.stdout
    (site / "manners" / "polite.py").write_text(MODULE.replace('"3"', '"4"').replace("counted", "counted again"))
    assert analyze(experiment, site).returncode == 0
    assert '"version":"4"' in (batch.analytics / "findings.jsonl").read_text(), "another version is asked again"


def test_an_analyzer_that_is_not_installed_is_named_with_those_that_are(project: Project, site: Path) -> None:
    finished(project)
    ran = analyze(project.experiment(FILE.format("polit")), site)
    assert ran.returncode == 2
    assert 'no analyzer is called "polit"' in ran.stderr
    assert '"polite"' in ran.stderr
