"""A night that trains keeps to its `--budget-usd`: iterations and training spend from one budget, and a resume goes on."""

import json
from pathlib import Path

import pytest

from support.experiments import Project
from support.tasks import SMALL_GYM, write_small_gym
from support.warm import Warm
from terminalbench.runner.executors import local
from terminalbench.trainer.plan import load_plan
from terminalbench.trainer.training import open_training

PLAN = """
schema_version = 1
slug = "bounded"
environment = "tasks"
nights = 2
[profile]
agent = "simulated"
model = "simulated/student"
options = { solve_probability = 0.3, skill_text = { "Check" = 0.7 }, delay_sec = [0.0, 0.0], steps_mean = 2, cost_per_mtok_usd = 3.0 }
[[variants]]
reason = "nobody looks again"
sections = { "End" = "Check the result." }
"""


def trials(root: Path) -> dict[Path, float]:
    """What every trial of the project cost."""
    found = {one: json.loads(one.read_text()) for one in root.glob("results/**/runs/*/*/result.json")}
    return {place: one["agent_result"]["cost_usd"] for place, one in found.items()}


@pytest.mark.long
def test_a_night_that_trains_spends_one_budget_and_a_resume_goes_on(
    project: Project, tbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.root)
    monkeypatch.setattr(local, "spawn", Warm())
    write_small_gym(project.root / "tasks")
    file = project.write("plan.toml", PLAN + SMALL_GYM)
    learned = load_plan(file).split.train[0].id
    night = project.root / "results/night"
    asked = ["--learn", file, "--iterations", "1", "--tasks", learned, "--output", night, "--seed", "1"]

    ran = tbench("overnight", *asked, "--budget-usd", "0.35")
    assert ran.code == 3, ran.out + ran.err
    assert "the training is not finished: the budget of $0.35 of the night is used up" in ran.out
    assert "--resume results/night" in ran.out
    first = trials(project.root)
    assert 2 < len(first) < 8
    assert 0.15 < sum(first.values()) <= 0.35 + max(first.values())  # one that runs may cost more than was thought
    said = (night / "report.md").read_text()
    assert "<summary>Training bounded, night 1</summary>" in said
    assert "it is not finished: the budget of $0.35" in said
    assert summary_usd(night) == pytest.approx(sum(first.values()))
    assert open_training(file).nights == []

    assert tbench("overnight", "--resume", night).code == 3  # nothing has changed
    assert trials(project.root) == first
    ran = tbench("overnight", "--resume", night, "--budget-usd", "5")
    assert ran.code == 0, ran.out + ran.err
    every = trials(project.root)
    assert every.items() > first.items()
    (entry,) = open_training(file).nights
    assert (entry.trials, entry.measured, len(every)) == (8, 8, 9)  # each once, with that of the iteration
    assert summary_usd(night) == pytest.approx(sum(every.values()))
    assert "it is not over" not in (night / "report.md").read_text()


def summary_usd(night: Path) -> float:
    return json.loads((night / "summary.json").read_text())["cost_usd"]
